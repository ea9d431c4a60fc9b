"""Products of matrices in kernels that the compiler sees only from outside, by formula."""

import math

from transduce.planning.hlo import Instruction

_SPLASH = {"splash_mha_fwd": 2, "splash_mha_dq": 3, "splash_mha_dkv": 4}
"""Products [T, S] x H that each of splash attention's kernels computes: Q K^T and the softmax times
V; again Q K^T, dO V^T, and dS K; again Q K^T, dO V^T, dO^T softmax, and dS^T Q."""


def kernel_flops(
    item: Instruction, known: dict[str, Instruction], *, array: int = 1
) -> float | None:
    """FLOPs of a custom call, its heads' width filled up to a multiple of `array`.

    2 B N T S H for each product of an attention kernel; half of it, and half a block's, where it
    is causal, in blocks of 512 positions.
    None where it is no attention kernel, or none that is known here.
    """
    if item.opcode != "custom-call":
        return None
    kernel = item.attribute(r'name[\\]*":\s*[\\]*"(splash\w+)') or item.name
    for prefix, products in _SPLASH.items():
        if kernel.startswith(prefix):
            return products * _splash_product(item, known, array)
    return None


def _splash_product(item: Instruction, known: dict[str, Instruction], array: int) -> float:
    shapes = [a.sizes for name in item.operands if name in known for a in known[name].arrays]
    queries, keys = [sizes for sizes in shapes if len(sizes) == 4][:2]
    rows, heads, length, width = queries
    width = math.ceil(width / array) * array
    products = 2.0 * rows * heads * length * keys[2] * width
    causal = any("q_sequence" in name for name in item.operands)
    return products * (_causal_share(length) if causal else 1)


def _causal_share(length: int, block: int = 512) -> float:
    blocks = math.ceil(length / block)
    return (blocks + 1) / (2 * blocks)
