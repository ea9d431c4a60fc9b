"""What may be written next."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transduce.arrays import BOS, EOS, PAD, UNK, Array
from transduce.decoding.constraints import (
    Constraint,
    ForcedPrefix,
    MinimumLength,
    NoRepeatedNgram,
    Pieces,
    permitted_pieces,
)

WIDTH = 8


def permitted(
    constraints: Sequence[Constraint],
    written: Sequence[Sequence[int]],
    *,
    limits: Sequence[int] | None = None,
    room: int = 6,
) -> list[set[int]]:
    """The pieces that may follow each of `written`, which are rows of one hypothesis."""
    ids = np.full((len(written), 1, room), PAD, np.int32)
    for row, pieces in enumerate(written):
        ids[row, 0, : len(pieces)] = pieces
    lengths = jnp.asarray([len(pieces) for pieces in written])
    mask = permitted_pieces(
        constraints,
        jnp.asarray(ids),
        lengths,
        width=WIDTH,
        ended=lengths >= jnp.asarray(limits or [room] * len(written)),
    )
    mask = np.broadcast_to(np.asarray(mask), (len(written), 1, WIDTH))
    return [set(np.flatnonzero(row[0]).tolist()) for row in mask]


def minimum(*lengths: int) -> MinimumLength:
    return MinimumLength(minimum=jnp.asarray(lengths))


def prefix(*prefixes: Sequence[int]) -> ForcedPrefix:
    width = max(1, *map(len, prefixes))
    filled = [[*each, *[PAD] * (width - len(each))] for each in prefixes]
    lengths = [len(each) for each in prefixes]
    return ForcedPrefix(prefix=jnp.asarray(filled), length=jnp.asarray(lengths))


def test_without_a_constraint_all_may_be_written() -> None:
    assert permitted([], [[], [5]]) == [set(range(8))] * 2


def test_pieces_are_those_of_the_vocabulary_without_pad_bos_and_the_banned() -> None:
    assert permitted([Pieces(vocabulary=6)], [[]]) == [{EOS, UNK, 4, 5}]
    assert permitted([Pieces(vocabulary=8, banned=(UNK, 6))], [[]]) == [{EOS, 4, 5, 7}]


def test_no_eos_before_the_minimum() -> None:
    """Of each row, counted without EOS."""
    some, all_ = {UNK, 4, 5}, {EOS, UNK, 4, 5}
    written = [[], [4], [4, 4], [], [4, 4]]
    found = permitted([Pieces(vocabulary=6), minimum(2, 2, 2, 0, 3)], written)
    assert found == [some, some, all_, all_, some]


def test_a_prefix_is_given_piece_by_piece_and_then_all_is_free() -> None:
    forced = prefix([4, 5], [4, 5], [4, 5], [], [7])
    written = [[], [4], [4, 5], [], [7]]
    free = {EOS, UNK, 4, 5}
    assert permitted([Pieces(vocabulary=6), forced], written) == [{4}, {5}, free, free, free]


def test_a_prefix_stands_above_the_constraints_before_it() -> None:
    """It may have banned pieces, repeat itself and end early; what follows it may not."""
    constraints = [Pieces(vocabulary=6, banned=(UNK,)), minimum(3, 3, 3), NoRepeatedNgram(n=1)]
    forced = prefix([UNK, UNK, 4], [UNK, UNK], [EOS])
    assert permitted([*constraints, forced], [[UNK], [UNK, UNK], []]) == [{UNK}, {4, 5}, {EOS}]


def test_at_the_limit_only_eos_may_follow() -> None:
    """D7: whatever the constraints; the prefix and the minimum are then not reached."""
    constraints = [Pieces(vocabulary=6), minimum(4, 4, 0), prefix([4, 4, 4], [4, 4, 4], [])]
    written = [[4, 4], [4], []]
    assert permitted(constraints, written, limits=[2, 2, 0]) == [{EOS}, {4}, {EOS}]


def test_where_nothing_may_follow_eos_does() -> None:
    """Rows for themselves, even where EOS is forbidden as well."""
    constraints = [Pieces(vocabulary=5), minimum(4, 4), NoRepeatedNgram(n=1)]
    assert permitted(constraints, [[4, UNK], [4]]) == [{EOS}, {UNK}]


@pytest.mark.parametrize(
    ("n", "written", "blocked"),
    [
        (1, [4, 5, 4], {4, 5}),
        (1, [], set()),
        (2, [4], set()),
        (2, [4, 4], {4}),
        (2, [4, 5, 6, 4], {5}),
        (2, [4, 5, 4, 6, 4], {5, 6}),
        (3, [4, 4], set()),
        (3, [4, 4, 4], {4}),
        (3, [4, 5, 6, 4, 5], {6}),
        (3, [4, 5, 6, 5, 5], set()),
        (7, [4, 4, 4, 4, 4], set()),
    ],
)
def test_an_ngram_is_not_written_twice(n: int, written: list[int], blocked: set[int]) -> None:
    """4 5 6 4 and then 5 would be 4 5 again. The room of 6 may be less than n."""
    assert permitted([NoRepeatedNgram(n=n)], [written]) == [set(range(8)) - blocked]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_blocked_pieces_are_those_that_would_complete_an_earlier_ngram(n: int) -> None:
    """Against a search through each hypothesis, whatever stands where nothing is written yet."""
    rng = np.random.default_rng(n)
    rows, beams, room = 200, 3, 12
    ids = rng.integers(UNK, 6, (rows, beams, room))
    lengths = rng.integers(0, room, rows)

    @jax.jit
    def narrow(ids: Array, lengths: Array) -> Array:
        everything = jnp.ones((1, 1, WIDTH), bool)
        return NoRepeatedNgram(n=n).narrow(everything, ids, lengths)

    mask = np.asarray(narrow(ids, lengths))
    some = 0
    for row, beam in np.ndindex(rows, beams):
        written = ids[row, beam, : lengths[row]].tolist()
        earlier = {tuple(written[start : start + n]) for start in range(len(written) - n + 1)}
        latest = written[len(written) - n + 1 :] if len(written) >= n - 1 else [BOS]
        blocked = {piece for piece in range(WIDTH) if (*latest, piece) in earlier}
        assert set(np.flatnonzero(~mask[row, beam]).tolist()) == blocked
        some += bool(blocked)
    assert some > 50
