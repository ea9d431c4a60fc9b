"""The log-probability of a given target, by the same rules as search reports it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import batched

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from transduce.arrays import Array, Batch, Float, Tokens
from transduce.config import RequestError
from transduce.decoding.blocks import WIDTHS, blocks, rectangle, width_for
from transduce.decoding.ensemble import mean_logits
from transduce.model.transformer import Transformer

_BLOCKS_AT_A_TIME = 64

LONGEST = 1 << 14
"""Tokens of a line that is scored: what is computed grows with their square."""


def score_pairs(
    models: Sequence[Transformer],
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    *,
    block_rows: int,
) -> Iterator[float]:
    """log P(target | source) of each pair of ids with EOS, in order: the sum over all its ids.

    An empty target scores as EOS alone. Of several models the mean probability of each id counts,
    as in an ensemble's search. Nothing is cut: raises `RequestError`, naming the pair by its
    number, for one that is longer than LONGEST, or than a model's learned positions.
    """
    first = 1
    for part in batched(pairs, block_rows * _BLOCKS_AT_A_TIME):
        for number, pair in enumerate(part, start=first):
            _require_places(models, pair, number)
        yield from _score(tuple(models), part, block_rows)
        first += len(part)


def _require_places(
    models: Sequence[Transformer], pair: tuple[Sequence[int], Sequence[int]], number: int
) -> None:
    length = max(map(len, pair))
    if length > LONGEST:
        raise RequestError(
            f"line {number}: {length:,} tokens are more than can be scored ({LONGEST:,})"
        )
    for model in models:
        places = model.config.learned_positions
        if model.config.positions == "learned" and length > places:
            raise RequestError(
                f"line {number}: {length} tokens are more than model.learned_positions ({places})"
            )


def _score(
    models: tuple[Transformer, ...],
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    block_rows: int,
) -> list[float]:
    results = [0.0] * len(pairs)
    shapes = [(width_for(len(source)), width_for(len(target))) for source, target in pairs]
    lengths = [len(target) for _, target in pairs]
    for (source_width, target_width), members in blocks(shapes, lengths, block_rows):
        source = rectangle([pairs[m][0] for m in members], rows=block_rows, width=source_width)
        target = rectangle([pairs[m][1] for m in members], rows=block_rows, width=target_width)
        batch = Batch(
            source=Tokens.single(jnp.asarray(source)), target=Tokens.single(jnp.asarray(target))
        )
        scores = np.asarray(_score_block(models, batch))
        for row, member in enumerate(members):
            results[member] = float(scores[row])
    return results


@jax.jit
def _score_block(models: tuple[Transformer, ...], batch: Batch) -> Float[Array, "B"]:
    hidden = [model.hidden(batch) for model in models]

    def part(start: Array) -> Array:
        """Of the positions from `start` on, so that few logits are there at a time."""

        def of(x: Array) -> Array:
            return lax.dynamic_slice_in_dim(x, start, WIDTHS[0], axis=1)

        logits = mean_logits(
            [model.logits(of(each)) for model, each in zip(models, hidden, strict=True)]
        )
        log_z = jax.nn.logsumexp(logits, axis=-1)
        chosen = jnp.take_along_axis(logits, of(batch.target.ids)[..., None], axis=-1)[..., 0]
        return jnp.sum((chosen - log_z) * (of(batch.target.segments) != 0), axis=1)

    starts = jnp.arange(0, batch.target.ids.shape[1], WIDTHS[0])
    return jnp.sum(lax.map(part, starts), axis=0)
