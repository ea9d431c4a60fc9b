"""From lines of text to their translations."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import jax
import numpy as np
from scipy.linalg import block_diag

from transduce.arrays import EOS
from transduce.config import RequestError, SearchConfig
from transduce.config_checks import require
from transduce.decoding.alignment import align
from transduce.decoding.block import Method
from transduce.decoding.blocks import width_for
from transduce.decoding.engine import Engine, Request
from transduce.decoding.grammar import Alphabet
from transduce.decoding.sampling import Sampling
from transduce.decoding.search import Hypotheses, Ranking
from transduce.model.transformer import Transformer, with_dtype
from transduce.text.lines import readable
from transduce.text.splitting import split
from transduce.text.treebank import words_of
from transduce.text.trees_as_text import Repairs, restore
from transduce.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """One translation of a line."""

    text: str
    tokens: tuple[str, ...]
    """The pieces, EOS included; none for a blank line, which is not searched."""
    ids: tuple[int, ...]
    """Of the tokens."""
    token_log_probabilities: tuple[float, ...]
    """Natural logarithms, of the model's whole softmax."""
    log_probability: float
    """Their sum."""
    penalized_score: float
    """What ranks hypotheses: the log-probability with the penalties of the search."""
    alignment: tuple[tuple[float, ...], ...] | None = None
    """The attention of each token to the tokens of the source, where it was asked for."""


@dataclass(frozen=True, kw_only=True)
class Translation:
    """What became of one line: at least one hypothesis, best first, and what to know about it."""

    hypotheses: tuple[Hypothesis, ...]
    source_tokens: tuple[str, ...] = ()
    """The pieces that were read, EOS included."""
    notes: tuple[str, ...] = ()
    repairs: Repairs = field(default_factory=Repairs)
    """Of the best hypothesis, where texts are trees."""


_BLANK = Hypothesis(
    text="",
    tokens=(),
    ids=(),
    token_log_probabilities=(),
    log_probability=0.0,
    penalized_score=0.0,
)


@dataclass(frozen=True, kw_only=True)
class _Line:
    """What is asked of the engine for a line: nothing, its text, or each of its parts."""

    text: str
    sources: tuple[tuple[int, ...], ...] = ()
    prefix: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


class Translator:
    """Translates lines in blocks of fixed shape (see `blocks`)."""

    def __init__(
        self,
        models: Sequence[Transformer],
        vocabulary: Vocabulary,
        config: SearchConfig,
        *,
        n_best: int = 1,
        alignments: bool = False,
        prefixes: bool = False,
        trees: bool = False,
    ):
        """Several models are an ensemble. With `prefixes`, `translate` takes them.

        With `trees`, the texts of a parser are trees in brackets, repaired where need be, in place
        of their symbols. Raises `RequestError` when a model has too few learned positions for
        `config`, a banned piece is not in the vocabulary, which has no symbols for trees that are
        asked for, or `n_best` is more than the beam or less than 1.
        """
        require(n_best > 0, f"--n-best must be positive, not {n_best}")
        if n_best > config.beam and not config.temperature:
            raise RequestError(
                f"--n-best {n_best} is more than search.beam ({config.beam}): there are no more "
                "hypotheses than that"
            )
        if config.grammar and not vocabulary.symbols:
            raise RequestError("search.grammar tree is for parsers: this model writes text")
        self.vocabulary, self.config, self._trees = vocabulary, config, trees
        self._models = tuple(
            with_dtype(model, config.dtype) if config.dtype else model for model in models
        )
        self._n_best, self._alignments = n_best, alignments
        self._limit, self._limited_by = _source_limit(models, config)
        learned = [model.config for model in models if model.config.positions == "learned"]
        self._places = min((config.learned_positions for config in learned), default=0)
        devices = jax.local_devices()
        method = _method(config, vocabulary, n_best=n_best, prefixes=prefixes)
        self._alphabet = method.trees
        self._engine = Engine(
            self._models,
            method,
            rows=config.block_rows,
            devices=devices[: config.devices or len(devices)],
            at_once=config.blocks,
        )

    def translate(
        self,
        lines: Sequence[str],
        *,
        prefixes: Sequence[str] = (),
        numbers: Sequence[int] | None = None,
    ) -> Iterator[Translation]:
        """One translation for each line, in order, as they are ready; a blank line's is empty.

        A source that is too long is cut or split, and noted. An output begins with the pieces of
        the line's prefix; a note says when not with all of them. What is drawn for a line is
        seeded by its number, 1 and so on if there are no `numbers`.
        Raises `RequestError` when the model's logits are not finite.
        """
        plans = self._plan(lines, prefixes)
        numbers = numbers or range(1, len(lines) + 1)
        requests, owners = [], []
        for number, plan in enumerate(plans):
            for part, source in enumerate(plan.sources):
                prefix = plan.prefix if part == 0 else ()
                # Parts are drawn for apart, so that equal ones need not become equal.
                line = numbers[number] + part * 1_000_003
                requests.append(self._request(source, prefix, line=line))
                owners.append(number)
        missing = [len(plan.sources) for plan in plans]
        parts: list[dict[int, tuple[Hypothesis, ...]]] = [{} for _ in plans]
        found = self._searched(requests)
        for number, plan in enumerate(plans):
            while len(parts[number]) < missing[number]:
                index, hypotheses = next(found)
                parts[owners[index]][index] = hypotheses
            yield self._joined(plan, [parts[number][index] for index in sorted(parts[number])])
            parts[number] = {}

    def _plan(self, lines: Sequence[str], prefixes: Sequence[str]) -> list[_Line]:
        plans = []
        texts, replaced = zip(*map(readable, lines), strict=True) if lines else ((), ())
        for number, ids in enumerate(self.vocabulary.encode_many(texts)):
            text, first = texts[number], (replaced[number],) * bool(replaced[number])
            prefix, notes = self._prefix(prefixes[number]) if prefixes else ([], [])
            if not self._has_text(text, ids):
                left_out = ("blank source: its prefix is left out",) * bool(prefix)
                plans.append(_Line(text=text, notes=(*first, *left_out)))
                continue
            sources, more = self._sources(text, ids)
            plans.append(
                _Line(
                    text=text,
                    sources=tuple(map(tuple, sources)),
                    prefix=tuple(prefix),
                    notes=(*first, *more, *notes),
                )
            )
        return plans

    def _prefix(self, text: str) -> tuple[list[int], list[str]]:
        """The pieces that an output begins with, and notes on them."""
        ids = self.vocabulary.encode_target(text)[:-1]
        # The EOS after them takes a place too.
        most = self._places - 1 if self._places else len(ids)
        if len(ids) <= most:
            return ids, []
        return ids[:most], [f"prefix of {len(ids)} pieces cut to {most} (model.learned_positions)"]

    def _sources(self, line: str, ids: list[int]) -> tuple[list[list[int]], list[str]]:
        """What is searched of a line that has text, with EOS each, and notes on it."""
        limit, pieces = self._limit, len(ids) - 1
        if len(ids) <= limit:
            return [ids], []
        if self.config.long_lines == "cut":
            note = f"source of {pieces} pieces cut to {limit - 1} ({self._limited_by})"
            return [[*ids[: limit - 1], EOS]], [note]
        texts = split(line, lambda text: len(self.vocabulary.encode(text)) <= limit)
        parts = [
            part
            for text, part in zip(texts, self.vocabulary.encode_many(texts), strict=True)
            if self._has_text(text, part)
        ]
        # What does not fit is a single character.
        cut = sum(len(part) > limit for part in parts)
        note = (
            f"source of {pieces} pieces split into {len(parts)} parts of at most {limit - 1} "
            f"({self._limited_by})" + (f", {cut} of them cut" if cut else "")
        )
        return [part if len(part) <= limit else [*part[: limit - 1], EOS] for part in parts], [note]

    def _has_text(self, line: str, ids: Sequence[int]) -> bool:
        # A vocabulary that normalises may leave nothing but space of a line that has more.
        return bool(line.strip() and self.vocabulary.decode(ids).strip())

    def _request(self, source: tuple[int, ...], prefix: tuple[int, ...], *, line: int) -> Request:
        config, pieces = self.config, len(source) - 1
        limit = max(_output_limit(config, pieces), len(prefix))
        minimum = max(math.ceil(config.min_ratio * pieces), config.min_length)
        words = words_of(self.vocabulary.decode(source)) if self._alphabet else []
        width = width_for(len(source))
        # Of all sources in blocks of this width the longest output, or more for a long prefix.
        length = _output_limit(config, width - 1) + 1
        return Request(
            source=source,
            shape=(width, length if limit < length else width_for(limit + 1)),
            limit=limit,
            minimum=min(minimum, limit),
            prefix=prefix,
            line=line,
            kinds=self._alphabet.kinds(words) if self._alphabet else (),
        )

    def _searched(
        self, requests: Sequence[Request]
    ) -> Iterator[tuple[int, tuple[Hypothesis, ...]]]:
        """The hypotheses of each request, with its index, as they are found."""
        found = (
            (index, self._hypotheses(hypotheses))
            for index, hypotheses in self._engine.search(requests)
        )
        if not self._alignments:
            yield from found
            return
        made = list(found)
        pairs = [(requests[index].source, item.ids) for index, items in made for item in items]
        weights = iter(align(self._models, pairs, rows=self.config.block_rows))
        for index, items in made:
            yield (
                index,
                tuple(
                    replace(item, alignment=tuple(map(tuple, next(weights).tolist())))
                    for item in items
                ),
            )

    def _hypotheses(self, found: Hypotheses) -> tuple[Hypothesis, ...]:
        made = []
        for beam in range(self._n_best):
            length = int(found.lengths[beam]) if beam < len(found.lengths) else 0
            if length:
                ids = tuple(found.ids[beam, :length].tolist())
                hypothesis = Hypothesis(
                    text=self.vocabulary.decode(ids),
                    tokens=self.vocabulary.names(ids),
                    ids=ids,
                    token_log_probabilities=tuple(found.log_probabilities[beam, :length].tolist()),
                    log_probability=float(found.totals[beam]),
                    penalized_score=float(found.scores[beam]),
                )
                made.append(hypothesis)
        if not made:
            raise RequestError(
                "the model gives no finite scores: its training diverged; use an earlier "
                "checkpoint (--step)"
            )
        return tuple(made)

    def _joined(self, plan: _Line, parts: Sequence[tuple[Hypothesis, ...]]) -> Translation:
        """The translation of a line from those of its parts: their best, their second best, ..."""
        source = [piece for ids in plan.sources for piece in ids]
        blank = replace(_BLANK, alignment=() if self._alignments else None)
        hypotheses = tuple(map(_concatenated, zip(*parts, strict=False))) if parts else (blank,)
        translation = Translation(
            hypotheses=hypotheses,
            source_tokens=self.vocabulary.names(source),
            notes=plan.notes,
        )
        return self._as_trees(translation, plan.text) if self._trees and parts else translation

    def _as_trees(self, translation: Translation, line: str) -> Translation:
        found = [
            restore(each.text, line, known=self.vocabulary.symbols)
            for each in translation.hypotheses
        ]
        hypotheses = tuple(
            replace(each, text=str(tree))
            for each, (tree, _) in zip(translation.hypotheses, found, strict=True)
        )
        notes = [
            f"hypothesis {number} is no tree over its words, and was made one: {repairs}"
            for number, (_, repairs) in enumerate(found, start=1)
            if repairs
        ]
        return replace(
            translation,
            hypotheses=hypotheses,
            notes=(*translation.notes, *notes),
            repairs=found[0][1],
        )


def _concatenated(parts: Sequence[Hypothesis]) -> Hypothesis:
    if len(parts) == 1:
        return parts[0]
    alignment = None
    if all(part.alignment is not None for part in parts):
        # Tokens of one part do not attend to the source of another.
        matrix = np.asarray(block_diag(*(part.alignment for part in parts)))
        alignment = tuple(map(tuple, matrix.tolist()))
    return Hypothesis(
        text=" ".join(part.text for part in parts if part.text),
        tokens=sum((part.tokens for part in parts), ()),
        ids=sum((part.ids for part in parts), ()),
        token_log_probabilities=sum((part.token_log_probabilities for part in parts), ()),
        log_probability=math.fsum(part.log_probability for part in parts),
        penalized_score=math.fsum(part.penalized_score for part in parts),
        alignment=alignment,
    )


def _method(config: SearchConfig, vocabulary: Vocabulary, *, n_best: int, prefixes: bool) -> Method:
    sampling = None
    if config.temperature:
        sampling = Sampling(
            temperature=config.temperature,
            top_k=config.top_k,
            top_p=config.top_p,
            seed=config.seed,
        )
    return Method(
        beams=n_best if sampling else config.beam,
        n_best=n_best,
        vocabulary=len(vocabulary),
        ranking=Ranking(
            penalty=config.length_penalty, alpha=config.alpha, coverage=config.coverage
        ),
        sampling=sampling,
        banned=_banned(config, vocabulary),
        no_repeat_ngram=config.no_repeat_ngram,
        prefixes=prefixes,
        trees=Alphabet.of(vocabulary.symbols) if config.grammar else None,
    )


def _banned(config: SearchConfig, vocabulary: Vocabulary) -> tuple[int, ...]:
    ids = set()
    for piece in config.ban:
        try:
            ids.add(vocabulary.id_of(piece))
        except KeyError as error:
            raise RequestError(
                f"search.ban: {piece!r} is no piece of the vocabulary (one that begins a word is "
                "spelt with \u2581 before it)"
            ) from error
    if EOS in ids:
        raise RequestError("search.ban: the end of a sentence cannot be banned")
    return tuple(sorted(ids))


def _output_limit(config: SearchConfig, pieces: int) -> int:
    """Pieces that the output of a source of so many may have; at least one."""
    limit = int(config.max_ratio * pieces) + config.extra_length
    return max(1, min(limit, config.max_length) if config.max_length else limit)


def _source_limit(models: Sequence[Transformer], config: SearchConfig) -> tuple[int, str]:
    """Tokens of a source that are read, EOS included, and the field that decides it."""
    limit, field = config.max_source_length + 1, "search.max_source_length"
    for model in models:
        if model.config.positions != "learned":
            continue
        places = model.config.learned_positions
        # The output needs positions as well, EOS included.
        most = max((n for n in range(1, places) if _output_limit(config, n) < places), default=0)
        if not most:
            raise RequestError(
                f"search.extra_length ({config.extra_length}) leaves no room for a "
                f"source within model.learned_positions ({places})"
            )
        if most + 1 < limit:
            limit, field = most + 1, "model.learned_positions, search.extra_length"
    return limit, field
