"""From lines of text to their translations."""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import batched

import jax
import jax.numpy as jnp
import numpy as np

from transduce.arrays import EOS, Array, Int, Tokens
from transduce.config import RequestError, SearchConfig
from transduce.decoding.blocks import blocks, rectangle, width_for
from transduce.decoding.search import Hypotheses, beam_search
from transduce.model.transformer import Transformer
from transduce.text.vocabulary import Vocabulary

_BLOCKS_AT_A_TIME = 64


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """One translation of a line."""

    text: str
    ids: tuple[int, ...]
    """EOS included; none for a blank line, which is not searched."""
    log_probability: float
    """Natural logarithm, over all pieces and EOS."""
    score: float
    """The log-probability over the length penalty."""


@dataclass(frozen=True, kw_only=True)
class Translation:
    """What became of one line: at least one hypothesis, best first, and what to know about it."""

    hypotheses: tuple[Hypothesis, ...]
    notes: tuple[str, ...] = ()


_BLANK = Translation(hypotheses=(Hypothesis(text="", ids=(), log_probability=0.0, score=0.0),))


class Translator:
    """Translates lines in blocks of fixed shape (see `blocks`)."""

    def __init__(self, model: Transformer, vocabulary: Vocabulary, config: SearchConfig):
        """Raises `RequestError` when the model has too few learned positions for `config`."""
        self.model, self.vocabulary, self.config = model, vocabulary, config
        self._limit, self._limited_by = _source_limit(model, config)

    def translate(self, lines: Iterable[str]) -> Iterator[Translation]:
        """One translation for each line, in order; that of a line without pieces is empty.

        Lines are taken some hundreds at a time. A source that is too long is cut, and noted.
        Raises `RequestError` when the model's logits are not finite.
        """
        for part in batched(lines, self.config.block_rows * _BLOCKS_AT_A_TIME):
            yield from self._translate(part)

    def _translate(self, lines: tuple[str, ...]) -> list[Translation]:
        limit = self._limit
        results = [_BLANK] * len(lines)
        # A vocabulary that normalises may leave nothing but space of a line that has more.
        filled = [
            (index, ids)
            for index, ids in enumerate(self.vocabulary.encode_many(lines))
            if lines[index].strip() and self.vocabulary.decode(ids).strip()
        ]
        sources = [ids if len(ids) <= limit else [*ids[: limit - 1], EOS] for _, ids in filled]
        lengths = [len(ids) for ids in sources]
        shapes = [width_for(length) for length in lengths]
        for width, members in blocks(shapes, lengths, self.config.block_rows):
            ids = rectangle(
                [sources[member] for member in members], rows=self.config.block_rows, width=width
            )
            found = _search_block(
                self.model, self.config, jnp.asarray(ids), vocabulary=len(self.vocabulary)
            )
            found = jax.tree.map(np.asarray, found)
            for row, member in enumerate(members):
                index, whole = filled[member]
                note = f"source of {len(whole) - 1} pieces cut to {limit - 1} ({self._limited_by})"
                results[index] = Translation(
                    hypotheses=self._hypotheses(found, row),
                    notes=(note,) if len(whole) > limit else (),
                )
        return results

    def _hypotheses(self, found: Hypotheses, row: int) -> tuple[Hypothesis, ...]:
        made = []
        for beam in range(self.config.beam):
            length = int(found.lengths[row, beam])
            if length:
                ids = tuple(int(piece) for piece in found.ids[row, beam, :length])
                hypothesis = Hypothesis(
                    text=self.vocabulary.decode(ids),
                    ids=ids,
                    log_probability=float(found.log_probabilities[row, beam]),
                    score=float(found.scores[row, beam]),
                )
                made.append(hypothesis)
        if not made:
            raise RequestError(
                "the model gives no finite scores: its training diverged; use an earlier "
                "checkpoint (--step)"
            )
        return tuple(made)


def _source_limit(model: Transformer, config: SearchConfig) -> tuple[int, str]:
    """Tokens of a source that are read, EOS included, and the field that decides it."""
    limit = config.max_source_length + 1
    if model.config.positions == "learned":
        # An output is at most extra_length longer than its source, and needs positions as well.
        places = model.config.learned_positions
        if places - config.extra_length < 2:
            raise RequestError(
                f"search.extra_length ({config.extra_length}) leaves no room for a "
                f"source within model.learned_positions ({places})"
            )
        if places - config.extra_length < limit:
            return places - config.extra_length, "model.learned_positions, search.extra_length"
    return limit, "search.max_source_length"


@functools.partial(jax.jit, static_argnames=("config", "vocabulary"))
def _search_block(
    model: Transformer, config: SearchConfig, source: Int[Array, "B S"], *, vocabulary: int
) -> Hypotheses:
    """Beam search for a block; at most source + extra_length pieces each (section 6.1)."""
    tokens = Tokens.single(source)
    length = source.shape[1] + config.extra_length
    pieces = jnp.sum(tokens.segments, axis=1) - 1
    return beam_search(
        model.step,
        model.start(tokens, beams=config.beam, length=length),
        limits=pieces + config.extra_length,
        beams=config.beam,
        length=length,
        vocabulary=vocabulary,
        alpha=config.alpha,
    )
