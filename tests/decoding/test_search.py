"""Search on models that are tables, against enumeration and against a search in plain Python."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.arrays import EOS
from transduce.decoding.search import Hypotheses, Ranking, Rules, beam_search, begin

from .toys import (
    ALPHAS,
    ROOM,
    ROWS,
    SOURCE,
    VOCABULARY,
    Case,
    Found,
    Ids,
    Penalty,
    Prefix,
    Toy,
    advanced,
    arrays_of,
    assert_same,
    cases,
    listed,
    penalty_of,
    place,
    setting,
)

RANDOM = Toy.random()
RANKINGS: list[tuple[Penalty, float]] = [
    ("paper", 0.0),
    ("power", 0.0),
    ("none", 0.0),
    ("paper", 0.4),
    ("power", 0.4),
    ("none", 0.4),
]
"""Length penalty and weight of the coverage penalty."""


def batches(*, most: int) -> st.SearchStrategy[list[Case]]:
    return st.lists(cases(most=most), min_size=ROWS // 2, max_size=ROWS)


def values(found: Hypotheses, row: int) -> list[list]:
    """All that was found for a row, to be compared to the bit."""
    return [leaf[row].tolist() for leaf in jax.tree.leaves(found)]


def assert_all_found(found: Found, toy: Toy, case: Case, ranking: Ranking) -> None:
    """The hypotheses are all that there are, each with its own values."""
    assert {ids for ids, _, _ in found} == set(toy.enumerated(case))
    for ids, total, score in found:
        assert total == pytest.approx(toy.total(case, ids), abs=1e-4)
        assert score == pytest.approx(toy.score(case, ids, ranking), abs=2e-4, rel=1e-5)


@pytest.mark.parametrize(("penalty", "coverage"), RANKINGS)
@settings(max_examples=20, deadline=None)
@given(given=batches(most=3))
def test_a_beam_as_wide_as_the_space_finds_all(
    penalty: Penalty, coverage: float, given: list[Case]
) -> None:
    """D4, D6: every hypothesis that is permitted, once, best first, judged at its own length.

    Of 3 pieces at most 1 + 3 + 9 + 27 hypotheses; of 2, at most 1 + 2 + ... + 32 = 63.
    """
    ranking = Ranking(penalty=penalty, alpha=math.nan, coverage=coverage)
    found = RANDOM.search(given, beams=63, penalty=penalty, coverage=coverage)
    for row, case in enumerate(given):
        assert_all_found(listed(found, row), RANDOM, case, ranking)


@pytest.mark.parametrize(
    ("beams", "n_best", "penalty", "coverage"),
    [
        *((3, 3, *ranking) for ranking in RANKINGS),
        (1, 1, "paper", 0.0),
        (2, 2, "paper", 0.0),
        (3, 1, "paper", 0.0),
        (5, 2, "power", 0.4),
    ],
)
@settings(max_examples=20, deadline=None)
@given(given=batches(most=6))
def test_a_narrow_beam_equals_a_search_that_does_not_stop_early(
    beams: int, n_best: int, penalty: Penalty, coverage: float, given: list[Case]
) -> None:
    """D5, D6: the rule for stopping loses nothing that going on to the limit would find."""
    ranking = Ranking(penalty=penalty, alpha=math.nan, coverage=coverage)
    with jax.enable_x64(True):
        found = RANDOM.search(given, beams=beams, n_best=n_best, penalty=penalty, coverage=coverage)
    for row, case in enumerate(given):
        expected = RANDOM.plain_beam_search(case, beams=beams, ranking=ranking)[:n_best]
        assert_same(listed(found, row), expected, tolerance=1e-9)


def steps_needed(case: Case, *, beams: int, ranking: Ranking) -> int:
    """Until no live hypothesis, at any length that is left, could beat the worst one kept."""
    steps = 0
    for live, ended in RANDOM.plain_steps(case, beams=beams):
        steps += 1
        kept = RANDOM.ranked(case, ended, ranking)[:beams]
        worst = kept[-1][2] if len(kept) == beams else -math.inf
        lengths = range(steps + 1, case.limit + 2)
        penalties = [penalty_of(length, case.alpha, ranking.penalty) for length in lengths]
        if all(total / penalty <= worst for _, total in live for penalty in penalties):
            break
    return steps


@pytest.mark.parametrize(("penalty", "coverage"), [("paper", 0.0), ("power", 0.4)])
@settings(max_examples=15, deadline=None)
@given(given=batches(most=6))
def test_search_goes_on_just_as_long_as_something_can_win(
    penalty: Penalty, coverage: float, given: list[Case]
) -> None:
    """And what is found for a row changes no more when it is done, while others go on."""
    ranking = Ranking(penalty=penalty, alpha=math.nan, coverage=coverage)
    found = {}
    with jax.enable_x64(True):
        rows, tables = arrays_of(given), RANDOM.tables
        _, state, search, _ = setting(tables, rows, beams=3, n_best=3, vocabulary=VOCABULARY)
        for _ in range(ROOM):
            search, state = advanced(
                tables, rows, search, state, penalty=penalty, coverage=coverage
            )
            now = jax.tree.map(np.asarray, search)
            for row in np.flatnonzero(now.done).tolist():
                ended = int(now.lengths[row]), values(now.finished, row)
                assert found.setdefault(row, ended) == ended
    assert len(found) == ROWS
    for row, case in enumerate(given):
        assert found[row][0] == steps_needed(case, beams=3, ranking=ranking)


def test_a_length_penalty_is_as_it_is_defined() -> None:
    """EOS counts: of 7 pieces, (5 + 7) / 6 = 2 and 2^0.6 = 1.515717, 7^0.6 = 3.214096."""

    def penalties(penalty: Penalty, alpha: float) -> list[float]:
        ranking = Ranking(penalty=penalty, alpha=alpha)
        return ranking.length_penalty(jnp.asarray([1, 7])).tolist()

    assert penalties("paper", 0.6) == pytest.approx([1, 1.515717], rel=1e-6)
    assert penalties("paper", -1.0) == pytest.approx([1, 0.5])
    assert penalties("power", 0.6) == pytest.approx([1, 3.214096], rel=1e-6)
    assert penalties("power", -1.0) == pytest.approx([1, 1 / 7])
    assert penalties("none", 0.6) == [1, 1]


def test_a_coverage_penalty_is_as_it_is_defined() -> None:
    """Wu et al. 2016, equation 14: attention beyond 1 counts as 1, that to padding not at all.

    Of 4 and EOS the tokens have 0.3 + 0.2 = 0.5 and 0.6 + 0.7 = 1.3, which counts as 1; of EOS
    alone 0.3 and 0.6. So 0.4 ln 0.5 = -0.277259 and 0.4 (ln 0.3 + ln 0.6) = -0.685919.
    """
    toy = Toy.of({(): {EOS: 0.5, 4: 0.4}, (4,): {EOS: 0.9}})
    toy.attention[place(0, ())] = [0.3, 0.6, 0.1]
    toy.attention[place(0, (4,))] = [0.2, 0.7, 0.1]
    case = Case(source=2, limit=4)
    found = listed(toy.search([case], beams=4, coverage=0.4), 0)
    scores = {ids: score for ids, _, score in found}
    assert scores[(4, EOS)] == pytest.approx(math.log(0.36) - 0.277259, abs=1e-5)
    assert scores[(EOS,)] == pytest.approx(math.log(0.5) - 0.685919, abs=1e-5)
    assert list(scores)[:2] == [(4, EOS), (EOS,)]
    # A third token that is not padding: 0.4 (ln 0.2 + ln 0.5) and 0.4 (ln 0.1 + ...).
    found = listed(toy.search([replace(case, source=3)], beams=4, coverage=0.4), 0)
    scores = {ids: score for ids, _, score in found}
    assert scores[(4, EOS)] == pytest.approx(math.log(0.36) - 0.921034, abs=1e-5)
    assert scores[(EOS,)] == pytest.approx(math.log(0.5) - 1.606953, abs=1e-5)


def test_a_token_that_nothing_attends_to_leaves_scores_finite() -> None:
    toy = Toy.of({})
    toy.attention[:] = [1.0, 0.0, 0.0]
    found = toy.search([Case(limit=2)], beams=4, coverage=0.4)
    assert len(listed(found, 0)) == 4


def test_a_coverage_penalty_needs_attention() -> None:
    def step(ids, positions, state):
        return jnp.zeros((*ids.shape, 4)), None, state

    nothing = Prefix(jnp.zeros((1, 2), jnp.uint32))
    rules = Rules(limits=jnp.ones(1, int), constraints=(), source=jnp.ones((1, SOURCE), bool))
    ranking = Ranking(penalty="none", alpha=0.0, coverage=0.1)
    search = begin(1, beams=2, length=2, source_length=SOURCE)
    with pytest.raises(ValueError, match="needs a step function that gives attention"):
        beam_search(step, nothing, search, rules, ranking=ranking)


def test_a_very_strong_penalty_loses_no_hypothesis() -> None:
    """Scores lie far below the value that marks what is no hypothesis: (10/6)^45 is 1e10."""
    given = [Case(seed=seed, limit=3, alpha=-45.0) for seed in range(ROWS)]
    found = RANDOM.search(given, beams=63)
    for row in range(ROWS):
        assert len(listed(found, row)) == 40


def test_hypotheses_that_are_all_alike_are_found_once_each() -> None:
    """The vocabulary is full of ties."""
    toy = Toy.of({})
    case = Case(limit=3, alpha=1.0)
    found = toy.search([case], beams=63)
    assert_all_found(listed(found, 0), toy, case, Ranking(penalty="paper", alpha=math.nan))


def test_a_beam_wider_than_the_vocabulary_works() -> None:
    """D8: 64 hypotheses, 20 pieces."""
    toy = Toy.random(vocabulary=20, width=20)
    given = [Case(seed=limit, limit=limit, alpha=0.6) for limit in (4, 3, 2, 1)]
    ranking = Ranking(penalty="paper", alpha=math.nan)
    with jax.enable_x64(True):
        found = toy.search(given, beams=64)
    for row, case in enumerate(given):
        expected = toy.plain_beam_search(case, beams=64, ranking=ranking)
        assert len(expected) == {1: 18}.get(case.limit, 64)
        assert_same(listed(found, row), expected, tolerance=1e-9)


def test_one_beam_is_greedy_search() -> None:
    """The most probable piece at each step, until that is EOS; then nothing else is looked for."""
    given = [Case(seed=seed, alpha=1.0, limit=(8, 5, 3, 8)[seed % 4]) for seed in range(ROWS)]
    found = RANDOM.search(given, beams=1)
    lengths = set()
    for row, case in enumerate(given):
        ids, total = (), 0.0
        while not ids or ids[-1] != EOS:
            following = RANDOM.log_probabilities(case.seed, ids)
            pieces = [EOS] if len(ids) == case.limit else [EOS, 3, 4, 5]
            best = max(pieces, key=following.__getitem__)
            ids, total = (*ids, best), total + following[best]
        assert_same(listed(found, row), [(ids, total, total / ((5 + len(ids)) / 6))])
        lengths.add(len(ids))
    assert len(lengths) > 3


def test_a_prefix_of_the_greedy_output_changes_nothing() -> None:
    """D9: whatever its length, even the whole output; to the bit."""
    lengths = set()
    for seed in range(8):
        case = Case(seed=seed, limit=8)
        free = RANDOM.search([case], beams=1)
        ((ids, _, _),) = listed(free, 0)
        given = [replace(case, prefix=ids[:length]) for length in range(len(ids))]
        found = RANDOM.search(given, beams=1)
        for row in range(len(given)):
            assert values(found, row) == values(free, 0)
        lengths.add(len(ids))
    assert max(lengths) == 9


def test_each_hypothesis_is_judged_at_its_own_length() -> None:
    """D4: at alpha 0.6 the longer one wins, although the shorter is more probable."""
    toy = Toy.of(
        {
            (): {4: 0.4, 5: 0.3},
            (4,): {EOS: 0.9},
            (5,): {5: 1.0},
            (5, 5): {5: 1.0},
            (5, 5, 5): {5: 1.0},
            (5, 5, 5, 5): {EOS: 1.0},
        }
    )
    short, long = (4, EOS), (5, 5, 5, 5, EOS)
    found = toy.search([Case(alpha=alpha) for alpha in (0.0, 0.6, 1.0, -1.0)], beams=4)

    def best(row: int) -> tuple[Ids, float, float]:
        return listed(found, row)[0]

    # ln 0.36 = -1.021651, ln 0.3 = -1.203973; (10/6)^0.6 = 1.358655
    assert best(0) == (short, pytest.approx(-1.021651, 1e-5), pytest.approx(-1.021651, 1e-5))
    assert best(1) == (long, pytest.approx(-1.203973, 1e-5), pytest.approx(-0.886150, 1e-5))
    assert best(2) == (long, pytest.approx(-1.203973, 1e-5), pytest.approx(-0.722384, 1e-5))
    assert best(3) == (short, pytest.approx(-1.021651, 1e-5), pytest.approx(-1.191926, 1e-5))


def test_the_best_hypothesis_is_found_when_it_finishes_last() -> None:
    """D5: by then enough others have finished to fill the beam."""
    toy = Toy.of({(4,) * length: {4: 0.9, EOS: 0.1} for length in range(4)} | {(4,) * 4: {EOS: 1}})
    found = toy.search([Case(alpha=alpha) for alpha in ALPHAS], beams=2)
    expected = 4 * math.log(0.9)
    for row, alpha in enumerate(ALPHAS):
        best = listed(found, row)[0]
        assert_same([best], [((4, 4, 4, 4, EOS), expected, expected / (10 / 6) ** alpha)])


def test_a_longer_hypothesis_may_win_after_the_beam_is_full() -> None:
    """After two steps 0.9 and 0.09 x 0.5 = 0.045 have finished and 0.09 x 0.2 = 0.018 is live.

    Without a penalty it is beaten. With alpha 1 it can still score ln 0.018 / (10/6) = -2.410 at
    the limit, which is better than ln 0.045 / (7/6) = -2.658, though ln 0.018 / (8/6) = -3.013
    at the next length would not be.
    """
    toy = Toy.of(
        {
            (): {EOS: 0.9, 4: 0.09},
            (4,): {EOS: 0.5, 5: 0.2},
            (4, 5): {5: 1.0},
            (4, 5, 5): {5: 1.0},
            (4, 5, 5, 5): {EOS: 1.0},
        }
    )
    found = toy.search([Case(alpha=0.0), Case(alpha=1.0)], beams=2)
    assert [ids for ids, _, _ in listed(found, 0)] == [(EOS,), (4, EOS)]
    assert [ids for ids, _, _ in listed(found, 1)] == [(EOS,), (4, 5, 5, 5, EOS)]


def test_the_empty_hypothesis_may_win_and_a_minimum_length_avoids_it() -> None:
    """D7: without a minimum it is judged as any other."""
    toy = Toy.of({(): {EOS: 0.6, 4: 0.3}, (4,): {EOS: 0.5}})
    found = toy.search([Case(alpha=0.6), Case(alpha=0.6, minimum=1)], beams=4)
    empty, other = listed(found, 0), listed(found, 1)
    assert empty[0] == ((EOS,), pytest.approx(math.log(0.6)), pytest.approx(math.log(0.6)))
    # Nothing is renormalised: the model's probability of 4 and EOS stays 0.3 x 0.5.
    assert other[0][0] == (4, EOS)
    assert other[0][1] == pytest.approx(math.log(0.15))
    assert min(len(ids) for ids, _, _ in other) == 2


def test_no_limit_is_passed_and_a_limit_of_none_leaves_eos() -> None:
    """Each row has its own limit; at it, EOS follows whatever its probability."""
    toy = Toy.of({(4,) * length: {4: 1 - 1e-6} for length in range(5)})
    found = toy.search([Case(limit=limit) for limit in range(4)], beams=4)
    for row in range(4):
        assert max(len(ids) for ids, _, _ in listed(found, row)) == row + 1
    # 1e-6 is shared by the 7 other rows of the table.
    assert listed(found, 0) == [((EOS,), *[pytest.approx(math.log(1e-6 / 7), abs=1e-4)] * 2)]


def test_a_row_does_not_depend_on_other_rows() -> None:
    """D1, D2: to the bit, wherever it stands, and however long its neighbours go on."""
    limits = [8, 7, 8, 3, 5, 8, 1, 8, 6, 8, 4, 8, 2, 8, 7, 8]
    given = [Case(seed=seed, alpha=0.6, limit=limit) for seed, limit in enumerate(limits)]
    together = RANDOM.search(given, beams=4)
    order = np.random.default_rng(0).permutation(ROWS)
    shuffled = RANDOM.search([given[row] for row in order], beams=4)
    for row, origin in enumerate(order):
        assert values(shuffled, row) == values(together, origin)
    for row, case in enumerate(given):
        # The others end at once; before, this row was stepped on after it was done.
        rest = [Case(seed=99, limit=0)] * ROWS
        alone = RANDOM.search([*rest[:row], case, *rest[row + 1 :]], beams=4)
        assert values(alone, row) == values(together, row)


def test_logits_that_are_not_finite_end_a_row_without_hypotheses() -> None:
    """Whether at once or later, and its neighbours find what they found."""
    given = [Case(seed=seed, alpha=0.6) for seed in range(4)]
    whole = RANDOM.search(given, beams=4)
    for bad in (math.nan, math.inf, -math.inf):
        toy = Toy(RANDOM.logits.copy(), RANDOM.attention)
        toy.logits[place(0, ())] = bad
        for piece in (3, 4, 5):
            toy.logits[place(1, (piece,))] = bad
        found = toy.search(given, beams=4)
        assert listed(found, 0) == []
        # It ended before they came.
        assert [ids for ids, _, _ in listed(found, 1)] == [(EOS,)]
        for row in (2, 3):
            assert values(found, row) == values(whole, row)
