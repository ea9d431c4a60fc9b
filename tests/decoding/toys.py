"""Models that are tables, small enough to enumerate, and in plain Python what is found in them."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from transduce.arrays import BOS, EOS, PAD, UNK, Array
from transduce.decoding.constraints import (
    Constraint,
    ForcedPrefix,
    MinimumLength,
    NoRepeatedNgram,
    Pieces,
)
from transduce.decoding.search import (
    Hypotheses,
    Ranking,
    Rules,
    Search,
    advance,
    beam_search,
    begin,
)

QUICKLY = {"xla_backend_optimization_level": 0}
"""Compiler options that halve the time to compile; what is tested is the mathematics."""

ALPHAS = [-1.0, 0.0, 0.6, 1.0]
ROWS, ROOM, SOURCE = 16, 9, 3
"""Of every search, so that few shapes are compiled: rows, pieces with EOS, source tokens."""
VOCABULARY, WIDTH = 6, 8
"""3, 4 and 5 can be written; 6 and 7 are no pieces, and keep their probability."""
TABLE = 4093
"""Rows of a toy model's table; a prefix' logits are those of the row that its number hashes to."""

type Ids = tuple[int, ...]
type Item = tuple[Ids, float]
"""Ids and log-probability."""
type Found = list[tuple[Ids, float, float]]
"""Ids, log-probability and score of each hypothesis, best first."""
type Penalty = Literal["paper", "power", "none"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, which is a seed's, and what is asked of it: one row of a search."""

    seed: int = 0
    alpha: float = 0.0
    source: int = SOURCE
    """Source tokens that are to be covered; the others are padding."""
    limit: int = 4
    minimum: int = 0
    prefix: Ids = ()
    banned: bool = False
    """Piece 5 is."""
    ngram: int = 0

    def permitted(self, written: Ids, vocabulary: int = VOCABULARY) -> set[int]:
        """What may follow `written`."""
        if len(written) >= self.limit:
            return {EOS}
        if len(written) < len(self.prefix):
            return {self.prefix[len(written)]}
        pieces = {EOS, *range(UNK, vocabulary)}
        if self.banned:
            pieces.remove(5)
        if len(written) < self.minimum:
            pieces.remove(EOS)
        pieces = {piece for piece in pieces if not self._repeats((*written, piece))}
        return pieces or {EOS}

    def _repeats(self, ids: Ids) -> bool:
        ngrams = [ids[start : start + self.ngram] for start in range(len(ids) - self.ngram + 1)]
        return self.ngram > 0 and bool(ngrams) and ngrams[-1] in ngrams[:-1]


@st.composite
def cases(draw: st.DrawFn, *, most: int) -> Case:
    """With no constraint, some or all.

    Limits are at most `most` pieces, and 2 more where only two pieces can be written.
    """
    kinds = ["minimum", "prefix", "ban", "ngram"]
    given = draw(st.sets(st.sampled_from(kinds)))
    limit = draw(st.integers(0, most + 2 * ("ban" in given)))
    # Prefixes may be longer than the limit and have banned pieces; the minimum may be beyond it.
    prefix = draw(st.lists(st.integers(UNK, 5), max_size=5)) if "prefix" in given else []
    return Case(
        seed=draw(st.integers(0, 2**32 - 1)),
        alpha=draw(st.sampled_from(ALPHAS)),
        source=draw(st.integers(1, SOURCE)),
        limit=limit,
        minimum=draw(st.integers(1, limit + 1)) if "minimum" in given else 0,
        prefix=tuple(prefix),
        banned="ban" in given,
        ngram=draw(st.integers(1, 3)) if "ngram" in given else 0,
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Prefix:
    """A number for every prefix; one that is not reordered with its hypothesis is found out."""

    number: Array

    def reorder(self, beams: Array) -> "Prefix":
        moved = jnp.take_along_axis(self.number, beams, axis=1)
        # As in a state that is moved in its place: what others become must itself stay.
        stays = jnp.take_along_axis(beams, beams, axis=1) == beams
        return Prefix(jnp.where(stays, moved, moved + 1))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class InRows:
    """A constraint in some rows only."""

    rows: Array
    constraint: Constraint

    def narrow(self, permitted: Array, ids: Array, lengths: Array) -> Array:
        narrowed = self.constraint.narrow(permitted, ids, lengths)
        return jnp.where(self.rows[:, None, None], narrowed, permitted)


def arrays_of(given: Sequence[Case]) -> dict[str, np.ndarray]:
    """ROWS rows, of which those left over end at once."""
    filled = [*given, *[Case(limit=0)] * (ROWS - len(given))]
    prefixes = np.zeros((ROWS, ROOM), np.int32)
    for row, case in enumerate(filled):
        prefixes[row, : len(case.prefix)] = case.prefix
    return {
        "seeds": np.asarray([case.seed for case in filled], np.uint32),
        "alphas": np.asarray([case.alpha for case in filled]),
        "source": np.arange(SOURCE) < [[case.source] for case in filled],
        "limits": np.asarray([case.limit for case in filled], np.int32),
        "minimums": np.asarray([case.minimum for case in filled], np.int32),
        "prefixes": prefixes,
        "prefix_lengths": np.asarray([len(case.prefix) for case in filled], np.int32),
        "banned": np.asarray([case.banned for case in filled]),
        "ngrams": np.asarray([case.ngram for case in filled], np.int32),
    }


def setting(
    tables: Any, rows: Any, *, beams: int, n_best: int, vocabulary: int
) -> tuple[Any, Prefix, Search, Rules]:
    """The step function and what else a search begins with."""

    def step(ids: Array, positions: Array, state: Prefix) -> tuple[Array, Array, Prefix]:
        number = state.number * 31 + ids.astype(jnp.uint32)
        logits, attention = (table[number % TABLE] for table in tables)
        return logits, attention, Prefix(number)

    start = Prefix(jnp.broadcast_to(rows["seeds"][:, None], (ROWS, beams)))
    rules = Rules(
        limits=rows["limits"],
        constraints=(
            Pieces(vocabulary=vocabulary),
            InRows(rows["banned"], Pieces(vocabulary=vocabulary, banned=(5,))),
            MinimumLength(minimum=rows["minimums"]),
            *(InRows(rows["ngrams"] == n, NoRepeatedNgram(n=n)) for n in (1, 2, 3)),
            ForcedPrefix(prefix=rows["prefixes"], length=rows["prefix_lengths"]),
        ),
        source=rows["source"],
    )
    first = begin(ROWS, beams=beams, n_best=n_best, length=ROOM, source_length=SOURCE)
    return step, start, first, rules


@functools.partial(
    jax.jit,
    static_argnames=("penalty", "coverage", "beams", "n_best", "vocabulary"),
    compiler_options=QUICKLY,
)
def _search(
    tables: Any,
    rows: Any,
    *,
    penalty: Penalty,
    coverage: float,
    beams: int,
    n_best: int,
    vocabulary: int,
) -> Hypotheses:
    parts = setting(tables, rows, beams=beams, n_best=n_best, vocabulary=vocabulary)
    # An alpha for each row.
    ranking = Ranking(penalty=penalty, alpha=rows["alphas"], coverage=coverage)
    return beam_search(*parts, ranking=ranking)


@functools.partial(jax.jit, static_argnames=("penalty", "coverage"), compiler_options=QUICKLY)
def advanced(
    tables: Any,
    rows: Any,
    search: Search,
    state: Prefix,
    *,
    penalty: Penalty = "paper",
    coverage: float = 0.0,
) -> tuple[Search, Prefix]:
    """One step on."""
    step, _, _, rules = setting(tables, rows, beams=3, n_best=3, vocabulary=VOCABULARY)
    ranking = Ranking(penalty=penalty, alpha=rows["alphas"], coverage=coverage)
    return advance(step, state, search, rules, ranking=ranking)


class Toy:
    """A model whose next piece depends on the whole prefix; a seed makes it another model."""

    def __init__(self, logits: np.ndarray, attention: np.ndarray, *, vocabulary: int = VOCABULARY):
        self.logits, self.attention, self.vocabulary = logits, attention, vocabulary

    @classmethod
    def random(cls, *, seed: int = 0, vocabulary: int = VOCABULARY, width: int = WIDTH) -> "Toy":
        """The logits are whole multiples of 2^-8, so that they are the same in every precision."""
        rng = np.random.default_rng(seed)
        sharpness = rng.choice([0.5, 2.0, 10.0], (TABLE, 1))
        logits = np.round(256 * sharpness * rng.standard_normal((TABLE, width))) / 256
        attention = 0.997 * rng.dirichlet([0.3] * SOURCE, TABLE) + 0.001
        return cls(logits, attention, vocabulary=vocabulary)

    @classmethod
    def of(cls, probabilities: Mapping[Ids, Mapping[int, float]]) -> "Toy":
        """With the probabilities given for seed 0; what is not given is alike."""
        toy = cls(np.zeros((TABLE, WIDTH)), np.full((TABLE, SOURCE), 1 / SOURCE))
        for prefix, given in probabilities.items():
            rest = (1 - sum(given.values())) / max(1, WIDTH - len(given))
            values = [given.get(piece, rest) for piece in range(WIDTH)]
            toy.logits[place(0, prefix)] = np.log(np.maximum(values, 1e-30))
        return toy

    @property
    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        dtype = jnp.result_type(float)
        return self.logits.astype(dtype), self.attention.astype(dtype)

    def log_probabilities(self, seed: int, prefix: Ids) -> list[float]:
        """Of the next piece."""
        logits = self.logits[place(seed, prefix)]
        return (logits - np.log(np.sum(np.exp(logits)))).tolist()

    def total(self, case: Case, ids: Ids) -> float:
        """The log-probability of a hypothesis."""
        steps = enumerate(ids)
        return sum(self.log_probabilities(case.seed, ids[:at])[piece] for at, piece in steps)

    def score(self, case: Case, ids: Ids, ranking: Ranking) -> float:
        """log P / penalty + beta cp (Wu et al. 2016, equation 14)."""
        penalty = penalty_of(len(ids), case.alpha, ranking.penalty)
        attention = [self.attention[place(case.seed, ids[:at])] for at in range(len(ids))]
        covered = [sum(row[token] for row in attention) for token in range(case.source)]
        coverage = sum(math.log(min(each, 1.0)) for each in covered)
        return self.total(case, ids) / penalty + ranking.coverage * coverage

    def search(
        self,
        given: Sequence[Case],
        *,
        beams: int,
        n_best: int | None = None,
        penalty: Penalty = "paper",
        coverage: float = 0.0,
    ) -> Hypotheses:
        """ROWS rows, in float32, or in float64 where that is enabled."""
        found = _search(
            self.tables,
            arrays_of(given),
            penalty=penalty,
            coverage=coverage,
            beams=beams,
            n_best=n_best or beams,
            vocabulary=self.vocabulary,
        )
        return jax.tree.map(np.asarray, found)

    def enumerated(self, case: Case, prefix: Ids = ()) -> Iterator[Ids]:
        """Every hypothesis that is permitted."""
        for piece in sorted(case.permitted(prefix, self.vocabulary)):
            ids = (*prefix, piece)
            if piece == EOS:
                yield ids
            else:
                yield from self.enumerated(case, ids)

    def plain_steps(self, case: Case, *, beams: int) -> Iterator[tuple[list[Item], list[Item]]]:
        """After each step, what is live, and all that has ended, with its log-probability.

        Of the 2K best candidates those that end are kept apart, K that do not end go on. Greedy
        search takes the best one alone.
        """
        live: list[Item] = [((), 0.0)]
        ended: list[Item] = []
        while live:
            candidates = []
            for prefix, total in live:
                following = self.log_probabilities(case.seed, prefix)
                for piece in case.permitted(prefix, self.vocabulary):
                    candidates.append(((*prefix, piece), total + following[piece]))
            candidates.sort(key=lambda item: -item[1])
            best = candidates[: 2 * beams if beams > 1 else 1]
            ended = ended + [item for item in best if item[0][-1] == EOS]
            live = [item for item in best if item[0][-1] != EOS][:beams]
            yield live, ended

    def ranked(self, case: Case, ended: Sequence[Item], ranking: Ranking) -> Found:
        """Best first."""
        scored = [(ids, total, self.score(case, ids, ranking)) for ids, total in ended]
        return sorted(scored, key=lambda item: -item[2])

    def plain_beam_search(self, case: Case, *, beams: int, ranking: Ranking) -> Found:
        """It never stops early: it goes on until nothing is live."""
        *_, (_, ended) = self.plain_steps(case, beams=beams)
        return self.ranked(case, ended, ranking)[:beams]


def penalty_of(length: int, alpha: float, penalty: Penalty) -> float:
    """Of a hypothesis of so many pieces, EOS included."""
    base = {"paper": (5 + length) / 6, "power": float(length), "none": 1.0}[penalty]
    return base**alpha


def place(seed: int, prefix: Ids) -> int:
    """Where in the tables that prefix is."""
    for piece in (BOS, *prefix):
        seed = (seed * 31 + piece) % 2**32
    return seed % TABLE


def listed(found: Hypotheses, row: int) -> Found:
    """A row's hypotheses; that their form is as documented is checked on the way."""
    lengths = [int(length) for length in found.lengths[row]]
    count = sum(length > 0 for length in lengths)
    assert all(lengths[:count])
    assert np.all(found.scores[row, count:] == -np.inf)
    assert np.all(found.ids[row, count:] == PAD)
    made = [written(found, row, beam) for beam in range(count)]
    scores = [score for _, _, score in made]
    assert scores == sorted(scores, reverse=True)
    assert len({ids for ids, _, _ in made}) == count
    return made


def written(found: Hypotheses, row: int, beam: int) -> tuple[Ids, float, float]:
    """A hypothesis, whose ids and log-probabilities end with its length."""
    length = int(found.lengths[row, beam])
    ids = found.ids[row, beam].tolist()
    assert ids.index(EOS) == length - 1
    assert set(ids[length:]) <= {PAD}
    assert not {PAD, BOS} & set(ids[:length])
    steps = found.log_probabilities[row, beam]
    assert not np.any(steps[length:])
    np.testing.assert_allclose(np.sum(steps), found.totals[row, beam], rtol=1e-5, atol=1e-5)
    return tuple(ids[:length]), float(found.totals[row, beam]), float(found.scores[row, beam])


def assert_same(found: Found, expected: Found, *, tolerance: float = 1e-4) -> None:
    assert [ids for ids, _, _ in found] == [ids for ids, _, _ in expected]
    np.testing.assert_allclose(
        [item[1:] for item in found],
        [item[1:] for item in expected],
        rtol=tolerance,
        atol=tolerance,
    )
