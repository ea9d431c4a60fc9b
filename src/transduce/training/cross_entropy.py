"""Cross-entropy with label smoothing over the vocabulary, without keeping the logits.

The logits of a batch are its largest array by far. They are made for a few positions at a time,
and while they are there so is the gradient: what the backward pass needs is no more than
gradients of the shapes of the hidden states and of the table.
"""

import functools
import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from transduce.arrays import Array, Float, Int
from transduce.parallel.mesh import out_sharding, parts

type _Losses = tuple[Array, Array]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def cross_entropy(
    hidden: Float[Array, "B T D"],
    table: Float[Array, "V D"],
    labels: Int[Array, "B T"],
    weights: Float[Array, "B T"],
    smoothing: float,
    chunks: int,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sums over weighted positions: smoothed cross-entropy, and cross-entropy without smoothing.

    Against (1 - e) one_hot(label) + e / V (Szegedy et al. 2015, equation 7), with e the
    `smoothing` and logits `hidden` times `table`. The second sum has no gradient. The positions
    go in as many parts as `chunks` and T (on a device, where it is divided) have in common.
    """
    return _in_parts(hidden, table, labels, weights, smoothing, chunks, gradient="")[0]


def _forward(
    hidden: Array, table: Array, labels: Array, weights: Array, smoothing: float, chunks: int
) -> tuple[_Losses, tuple[Array, Array]]:
    def in_parts(gradient: Literal["dv", "vd"]) -> Callable[..., tuple]:
        return functools.partial(_in_parts, smoothing=smoothing, chunks=chunks, gradient=gradient)

    # The table's gradient is contracted over tokens, and a CPU transposes the first operand in
    # memory: of those of "dv", the narrow one.
    return lax.platform_dependent(
        hidden, table, labels, weights, cpu=in_parts("dv"), default=in_parts("vd")
    )


def _backward(
    smoothing: float, chunks: int, gradients: tuple[Array, Array], cotangents: _Losses
) -> tuple[Array, Array, None, None]:
    of_hidden, of_table = gradients
    scale = cotangents[0]
    return scale.astype(of_hidden.dtype) * of_hidden, scale * of_table, None, None


cross_entropy.defvjp(_forward, _backward)


def _in_parts(
    hidden: Array,
    table: Array,
    labels: Array,
    weights: Array,
    smoothing: float,
    chunks: int,
    *,
    gradient: Literal["", "dv", "vd"],
) -> tuple[_Losses, tuple[Array, Array]]:
    """The sums, and if asked for the first one's gradients in `hidden` and `table`.

    `gradient` says in which order the dimensions of the table's lie while it is added up.
    """
    wide = jnp.promote_types(hidden.dtype, jnp.float32)
    pieces = jnp.arange(table.shape[0])[None, None]

    def part(carry: tuple[_Losses, Array], inputs: tuple[Array, Array, Array]) -> tuple:
        (loss, log_loss), of_table = carry
        hidden, labels, weights = inputs
        logits = jnp.einsum("btd,vd->btv", hidden, table, preferred_element_type=wide)
        largest = jnp.max(logits, axis=-1, keepdims=True)
        exponentials = jnp.exp(logits - largest)
        total = jnp.sum(exponentials, axis=-1, keepdims=True)
        log_z = (largest + jnp.log(total))[..., 0]
        # A one-hot contraction, not a gather, so that the vocabulary may be divided over devices.
        hot = labels[..., None] == pieces
        chosen = jnp.sum(jnp.where(hot, logits, 0), axis=-1)
        smoothed = log_z - (1 - smoothing) * chosen - smoothing * jnp.mean(logits, axis=-1)
        losses = loss + jnp.sum(smoothed * weights), log_loss + jnp.sum((log_z - chosen) * weights)
        if not gradient:
            return (losses, of_table), None
        target = jnp.where(hot, 1 - smoothing, 0) + smoothing / table.shape[0]
        probabilities = jnp.exp(logits - log_z[..., None])
        of_logits = ((probabilities - target) * weights[..., None]).astype(hidden.dtype)
        of_hidden = jnp.einsum(
            "btv,vd->btd", of_logits, table, out_sharding=out_sharding("batch", "positions", None)
        )
        if gradient == "dv":
            of_table += jnp.einsum(
                "btd,btv->dv",
                hidden,
                of_logits,
                preferred_element_type=wide,
                out_sharding=out_sharding(None, "vocabulary"),
            )
        else:
            of_table += jnp.einsum(
                "btv,btd->vd",
                of_logits,
                hidden,
                preferred_element_type=wide,
                out_sharding=out_sharding("vocabulary", None),
            )
        return (losses, of_table), of_hidden

    count = math.gcd(chunks, hidden.shape[1] // parts("positions"))
    zero = jnp.zeros((), wide)
    start = (zero, zero), jnp.zeros_like(table.T if gradient == "dv" else table, wide)
    inputs = _split(hidden, count), _split(labels, count), _split(weights, count)
    (losses, of_table), of_hidden = lax.scan(part, start, inputs)
    if gradient:
        of_hidden = jnp.moveaxis(of_hidden, 0, 2).reshape(hidden.shape)
    if gradient == "dv":
        of_table = of_table.T
    return losses, (of_hidden, of_table.astype(table.dtype))


def _split(x: Array, count: int) -> Array:
    """[B, T, ...] to [count, B, T / count, ...]: each part takes every count-th position.

    Rows and positions may lie on several devices; all of them are at work on every part.
    """
    rows, length = x.shape[:2]
    return jnp.moveaxis(x.reshape(rows, length // count, count, *x.shape[2:]), 2, 0)
