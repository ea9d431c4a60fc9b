"""How attention is computed, given queries, keys, values and who may see whom."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp

from transduce.arrays import Array, Float
from transduce.config import RequestError
from transduce.model import cudnn
from transduce.model.chunked import attend_in_chunks
from transduce.model.ring import RING, ring_attend
from transduce.model.visibility import Visible
from transduce.parallel.mesh import spec

MASKED = -1e9
"""The score of what may not be seen. Finite, so that a row that sees nothing stays finite."""

type Kernel = Literal["auto", "plain", "chunked", "splash", "cudnn"]
"""plain makes all scores [B, N, T, S] at once, the others never more than a block of them:
chunked by XLA, splash by a kernel for TPUs, cudnn by one for NVIDIA GPUs; auto is `choose`."""

SHORT = 256 * 256
"""T x S below which `choose` takes plain attention.

From there on, plain attention moves 1.5 times the bytes of splash through a TPU's memory and
more (at 128 x 128 as many, at 64 x 64 fewer; compiled, not run), and on a CPU takes 1.2 times
chunked's time for values and gradients and more (at 64 x 64 the same).
"""

type Attention = Callable[[Array, Array, Array, Visible], Array]


def attend(
    queries: Float[Array, "B T N H"],
    keys: Float[Array, "B S N H"],
    values: Float[Array, "B S N J"],
    visible: Visible,
    *,
    kernel: Kernel = "plain",
) -> Float[Array, "B T N J"]:
    """softmax(Q K^T / sqrt(d_k)) V for each head (equation 1), the softmax in float32 or wider.

    All kernels agree but for rounding. What a query gets that sees nothing is finite, as are all
    gradients, and differs between kernels.
    Raises `RequestError` when `kernel` does not run on these devices; in which dtypes it computes
    is checked with the configuration.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if RING in mesh.explicit_axes and mesh.shape[RING] > 1:
        # Whatever the kernel: each needs all of a row's keys on one device.
        return ring_attend(queries, keys, values, visible)
    platform = current_platform()
    if kernel == "auto":
        kernel = choose(platform, queries, keys, values)
    if kernel == "plain":
        # Scores and weights are made again in the backward pass: of base, at 4,096 tokens on a CPU,
        # they and what XLA makes of them on the way took 0.7 of 2.4 GiB.
        return jax.checkpoint(attend_at_once)(queries, keys, values, visible)
    if kernel == "chunked":
        in_chunks = partial(attend_in_chunks, block=128 if platform == "cpu" else 512)
        return on_each_device(in_chunks, queries, keys, values, visible)
    _refuse(kernel, platform)
    if kernel == "cudnn":
        return on_each_device(cudnn.attend_by_cudnn, queries, keys, values, visible)
    # Where there is no TPU, nobody should wait for Pallas to be imported.
    from transduce.model.splash import attend_by_splash

    return on_each_device(attend_by_splash, queries, keys, values, visible)


def choose(platform: str, queries: Array, keys: Array, values: Array) -> Kernel:
    """The kernel for these shapes and this dtype.

    B has no say, so that what a row gives does not depend on what is computed beside it.
    """
    dtype, widest = queries.dtype, max(queries.shape[-1], values.shape[-1])
    if queries.shape[1] * keys.shape[1] < SHORT:
        return "plain"
    if platform == "tpu" and dtype != jnp.float64:
        return "splash"
    if platform == "gpu" and dtype == jnp.bfloat16 and widest <= cudnn.WIDEST:
        return "cudnn"
    return "chunked"


def on_each_device(
    attention: Attention, queries: Array, keys: Array, values: Array, visible: Visible
) -> Array:
    """`attention` of each device's rows and heads, as if there were no mesh."""
    if not jax.sharding.get_abstract_mesh().explicit_axes:
        return attention(queries, keys, values, visible)
    heads, rows = spec("batch", None, "heads", None), spec("batch", None)
    mapped = jax.shard_map(
        attention,
        in_specs=(heads, heads, heads, rows),
        out_specs=heads,
        # What a Pallas kernel makes does not say over which axes it varies.
        check_vma=False,
    )
    visible = jax.tree.map(lambda x: jax.reshard(x, rows), visible)
    return mapped(
        jax.reshard(queries, heads), jax.reshard(keys, heads), jax.reshard(values, heads), visible
    )


def _refuse(kernel: Kernel, platform: str) -> None:
    """What a kernel itself would say less clearly."""
    wanted, devices = {"splash": ("tpu", "TPUs"), "cudnn": ("gpu", "NVIDIA GPUs")}[kernel]
    if platform != wanted:
        raise RequestError(
            f"model.attention {kernel} is for {devices}, and these devices are {platform}: "
            "auto, plain and chunked run on all"
        )


def current_platform() -> str:
    """Of the mesh in force, which may be of devices that are not here; else of the default one."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return jax.default_backend() if device is None else device.platform


def attend_at_once(
    queries: Float[Array, "B T N H"],
    keys: Float[Array, "B S N H"],
    values: Float[Array, "B S N J"],
    visible: Visible,
) -> Float[Array, "B T N J"]:
    """`attend` by way of `attention_weights`."""
    weights = attention_weights(queries, keys, visible)
    return jnp.einsum("bnts,bsnj->btnj", weights.astype(values.dtype), values)


def attention_weights(
    queries: Float[Array, "B T N H"], keys: Float[Array, "B S N H"], visible: Visible
) -> Float[Array, "B N T S"]:
    """The softmax of equation 1: over S it sums to 1, and is 0 where nothing may be seen."""
    scores = jnp.einsum("btnh,bsnh->bnts", scaled(queries), keys)
    return masked_softmax(scores, visible.mask()[:, None])


def scaled(queries: Array) -> Array:
    """Queries over the square root of d_k."""
    # The queries are the smaller of the operands that the scale could be applied to.
    return queries * queries.shape[-1] ** -0.5


def masked_softmax(scores: Array, visible: Array) -> Array:
    """Over the last dimension, in float32 or wider."""
    scores = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
    scores = jnp.where(visible, scores, MASKED)
    scores = scores - jnp.max(scores, axis=-1, keepdims=True)
    weights = jnp.exp(scores)
    return weights / jnp.sum(weights, axis=-1, keepdims=True)
