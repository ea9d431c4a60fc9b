"""Products of matrices in kernels that the compiler sees only from outside, by formula."""

import math

from transduce.planning.hlo import Instruction

_SPLASH = {"splash_mha_fwd": 2, "splash_mha_dq": 3, "splash_mha_dkv": 4}
"""Products [T, S] x H that each of splash attention's kernels computes: Q K^T and the softmax times
V; again Q K^T, dO V^T, and dS K; again Q K^T, dO V^T, dO^T softmax, and dS^T Q, and dS K besides
where it gives the gradient of the queries too."""


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
            of_keys = prefix == "splash_mha_dkv"
            more = 1 if of_keys and len(item.arrays) == 3 else 0
            return (products + more) * _splash_product(item, known, array, of_keys=of_keys)
    return None


def _splash_product(
    item: Instruction, known: dict[str, Instruction], array: int, *, of_keys: bool
) -> float:
    """Of queries and keys either the width or the length may come last; of results the width."""
    shapes = [a.sizes for name in item.operands if name in known for a in known[name].arrays]
    queries, keys = [sizes for sizes in shapes if len(sizes) == 4][:2]
    rows, heads = queries[:2]
    results = [made.sizes for made in item.arrays if len(made.sizes) == 4]
    # The values' gradient is the last; what is of the queries, the first.
    length, width = (results[-1] if of_keys else results[0])[2:]
    other = math.prod((queries if of_keys else keys)[2:]) // width
    products = 2.0 * rows * heads * length * other * math.ceil(width / array) * array
    causal = any("q_sequence" in name for name in item.operands)
    return products * (_causal_share(other if of_keys else length) if causal else 1)


def _causal_share(length: int, block: int = 512) -> float:
    blocks = math.ceil(length / block)
    return (blocks + 1) / (2 * blocks)
