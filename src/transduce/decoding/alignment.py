"""Which source tokens each token of a given output attends to."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from transduce.arrays import BOS, Array, Float, Int, Tokens
from transduce.decoding.blocks import blocks, rectangle, width_for
from transduce.decoding.ensemble import Caches, step_all
from transduce.model.stepping import Stepper
from transduce.model.transformer import Transformer


def align(
    models: Sequence[Transformer],
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    rows: int,
) -> list[np.ndarray]:
    """For each (source, target), both with EOS, [target tokens, source tokens] of attention.

    Row j is the attention with which the decoder chose token j: that of the last layer but one,
    averaged over heads and models, as the coverage penalty counts it. Rows sum to 1.
    """
    results = [np.zeros(0)] * len(pairs)
    shapes = [(width_for(len(source)), width_for(len(target))) for source, target in pairs]
    lengths = [len(target) for _, target in pairs]
    for (source_width, target_width), members in blocks(shapes, lengths, rows):
        sources = rectangle([pairs[m][0] for m in members], rows=rows, width=source_width)
        targets = rectangle([pairs[m][1] for m in members], rows=rows, width=target_width)
        weights = np.asarray(_align_block(tuple(models), sources, targets))
        for row, member in enumerate(members):
            source, target = pairs[member]
            results[member] = weights[row, : len(target), : len(source)]
    return results


@jax.jit
def _align_block(
    models: tuple[Transformer, ...], sources: Int[Array, "B S"], targets: Int[Array, "B T"]
) -> Float[Array, "B T S"]:
    steppers = tuple(map(Stepper.of, models))
    rows, length = targets.shape
    caches = tuple(
        stepper.start(stepper.read(Tokens.single(sources)), beams=1, length=length)
        for stepper in steppers
    )

    def onward(state: Caches, inputs: tuple[Array, Array]) -> tuple[Caches, Array]:
        position, ids = inputs
        positions = jnp.broadcast_to(position, rows)
        _, attention, state = step_all(steppers, ids[:, None], positions, state)
        return state, attention[:, 0]

    inputs = jnp.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
    steps = (jnp.arange(length), inputs.T)
    _, attention = lax.scan(onward, Caches(caches=caches), steps)
    return attention.swapaxes(0, 1)
