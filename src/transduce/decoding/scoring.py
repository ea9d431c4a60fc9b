"""The log-probability of a given target, by the same rules as search reports it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import batched

import jax
import jax.numpy as jnp
import numpy as np

from transduce.arrays import Array, Batch, Float, Tokens
from transduce.config import RequestError
from transduce.decoding.blocks import blocks, rectangle, width_for
from transduce.model.transformer import Transformer
from transduce.text.vocabulary import Vocabulary

_BLOCKS_AT_A_TIME = 64


def score_pairs(
    model: Transformer,
    vocabulary: Vocabulary,
    pairs: Iterable[tuple[str, str]],
    *,
    block_rows: int,
) -> Iterator[float]:
    """log P(target | source) of each pair, in order: the sum over its pieces and EOS.

    An empty target scores as EOS alone. Nothing is cut: raises `RequestError` for a line that is
    longer than a model's learned positions.
    """
    first = 1
    for part in batched(pairs, block_rows * _BLOCKS_AT_A_TIME):
        sources = vocabulary.encode_many([source for source, _ in part])
        targets = vocabulary.encode_many([target for _, target in part])
        yield from score_ids(model, sources, targets, block_rows=block_rows, first=first)
        first += len(part)


def score_ids(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    block_rows: int,
    first: int = 1,
) -> list[float]:
    """log P of token sequences that end with EOS, each given its source.

    Raises `RequestError` for a sequence that is longer than a model's learned positions; `first`
    is the number that errors give to the first pair.
    """
    if model.config.positions == "learned":
        for number, pair in enumerate(zip(sources, targets, strict=True), start=first):
            length, places = max(map(len, pair)), model.config.learned_positions
            if length > places:
                raise RequestError(
                    f"line {number}: {length} tokens are more than model.learned_positions "
                    f"({places})"
                )
    results = [0.0] * len(sources)
    shapes = [
        (width_for(len(source)), width_for(len(target)))
        for source, target in zip(sources, targets, strict=True)
    ]
    lengths = [len(target) for target in targets]
    for (source_width, target_width), members in blocks(shapes, lengths, block_rows):
        source = rectangle([sources[m] for m in members], rows=block_rows, width=source_width)
        target = rectangle([targets[m] for m in members], rows=block_rows, width=target_width)
        batch = Batch(
            source=Tokens.single(jnp.asarray(source)), target=Tokens.single(jnp.asarray(target))
        )
        scores = np.asarray(_score_block(model, batch))
        for row, member in enumerate(members):
            results[member] = float(scores[row])
    return results


@jax.jit
def _score_block(model: Transformer, batch: Batch) -> Float[Array, "B"]:
    logits = model(batch)
    log_z = jax.nn.logsumexp(logits, axis=-1)
    chosen = jnp.take_along_axis(logits, batch.target.ids[..., None], axis=-1)[..., 0]
    return jnp.sum((chosen - log_z) * (batch.target.segments != 0), axis=1)
