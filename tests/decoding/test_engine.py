"""Requests in blocks that are refilled, on one device and on several."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transduce.arrays import BOS, EOS, PAD, Batch, Tokens
from transduce.decoding import block
from transduce.decoding.block import Method
from transduce.decoding.engine import Engine, Request
from transduce.decoding.search import Hypotheses, Ranking
from transduce.model.transformer import Transformer
from transduce.text.vocabulary import Vocabulary

WIDTH, LENGTH = 16, 22
PAPER = Ranking(penalty="paper", alpha=0.6)


def beam(beams: int, *, prefixes: bool = False) -> Method:
    return Method(beams=beams, n_best=beams, vocabulary=300, ranking=PAPER, prefixes=prefixes)


def asked(source: Sequence[int], **fields) -> Request:
    return Request(source=source, shape=(WIDTH, LENGTH), limit=len(source) + 5, **fields)


@pytest.fixture(scope="module")
def requests(short: list[str], vocabulary: Vocabulary) -> list[Request]:
    return [asked(ids) for ids in vocabulary.encode_many(short)]


@pytest.fixture(scope="module")
def one_device(model: Transformer) -> Engine:
    return Engine([model], beam(3), rows=4, devices=jax.devices()[:1])


def found(engine: Engine, requests: Sequence[Request]) -> list[list]:
    """All that is found for each request, each of which is answered once."""
    answers = list(engine.search(requests))
    assert sorted(index for index, _ in answers) == list(range(len(requests)))
    by_index = dict(answers)
    return [values(by_index[index]) for index in range(len(requests))]


def values(hypotheses: Hypotheses) -> list:
    return [leaf.tolist() for leaf in jax.tree.leaves(hypotheses)]


@pytest.fixture(scope="module")
def alone(one_device: Engine, requests: list[Request]) -> list[list]:
    """What is found for each request by itself."""
    return [found(one_device, [request])[0] for request in requests]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 9, 33])
def test_a_request_has_one_answer_whatever_is_asked_with_it(
    one_device: Engine, requests: list[Request], alone: list[list], count: int
) -> None:
    """D1, D11: to the bit, in rows that are free from the start or become free."""
    order = list(range(len(requests)))
    random.Random(count).shuffle(order)
    order = order[:count]
    assert found(one_device, [requests[place] for place in order]) == [
        alone[place] for place in order
    ]


def test_several_devices_find_the_same(
    model: Transformer, requests: list[Request], alone: list[list]
) -> None:
    """D1: to the bit, though a device has fewer requests than another, or none."""
    several = Engine([model], beam(3), rows=4, devices=jax.devices()[:3])
    for count in (len(requests), 9, 1):
        assert found(several, requests[-count:]) == alone[-count:]


@pytest.mark.parametrize("at_once", [2, 3])
def test_blocks_at_once_find_the_same_in_every_shape(
    model: Transformer, one_device: Engine, requests: list[Request], alone: list[list], at_once: int
) -> None:
    """D1: to the bit, each sentence once."""
    wide = [replace(request, shape=(2 * WIDTH, LENGTH)) for request in requests[::3]]
    expected = [*alone, *(found(one_device, [request])[0] for request in wide)]
    several = Engine([model], beam(3), rows=4, devices=jax.devices()[:1], at_once=at_once)
    assert found(several, [*requests, *wide]) == expected


def test_a_shape_is_compiled_once(model: Transformer, requests: list[Request]) -> None:
    """Whether a block is new or was refilled before; JAX counts what it has compiled."""
    functions: list[Any] = [block.read, block.start, block.run]
    before = [function._cache_size() for function in functions]
    found(Engine([model], beam(3), rows=3, devices=jax.devices()[:1]), requests)
    after = [function._cache_size() for function in functions]
    assert np.subtract(after, before).tolist() == [1, 1, 1]


@jax.jit
def logits_of(model: Transformer, source, target):
    return model(Batch(source=Tokens.single(source), target=Tokens.single(target)))


def following(model: Transformer, source: list[int], prefixes: list[list[int]]) -> np.ndarray:
    """[prefix, piece] log-probabilities after each prefix, by teacher forcing in float64."""
    sources, targets = np.zeros((3, WIDTH), np.int32), np.zeros((3, 32), np.int32)
    targets[:, 0] = EOS
    for row, prefix in enumerate(prefixes):
        sources[row, : len(source)] = source
        targets[row, : len(prefix) + 1] = [*prefix, EOS]
    logits = np.asarray(logits_of(model, jnp.asarray(sources), jnp.asarray(targets)), np.float64)
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return np.stack([logs[row, len(prefix)] for row, prefix in enumerate(prefixes)])


def plain_search(model: Transformer, request: Request) -> list[tuple[list[int], float]]:
    """Beam search that goes on to the limit: hypotheses with what ranks them, best first."""
    live, ended = [([], 0.0)], []
    for length in range(request.limit + 1):
        logs = following(model, list(request.source), [ids for ids, _ in live])
        logs[:, [PAD, BOS, *range(300, 320)]] = -np.inf
        if length == request.limit:
            logs[:, [piece for piece in range(320) if piece != EOS]] = -np.inf
        candidates = [
            ([*ids, piece], total + row[piece])
            for (ids, total), row in zip(live, logs, strict=True)
            for piece in np.argsort(-row)[:6].tolist()
        ]
        best = sorted(candidates, key=lambda item: -item[1])[:6]
        ended += [(ids, total) for ids, total in best if ids[-1] == EOS and total > -np.inf]
        live = [(ids, total) for ids, total in best if ids[-1] != EOS][:3]
    scored = [(ids, total / ((5 + len(ids)) / 6) ** 0.6) for ids, total in ended]
    return sorted(scored, key=lambda item: -item[1])[:3]


def test_it_finds_what_a_plain_search_by_teacher_forcing_finds(
    model: Transformer, one_device: Engine, requests: list[Request]
) -> None:
    """D4, D5, D10: with the model's caches, and rules for stopping."""
    some = requests[:5]
    for index, hypotheses in one_device.search(some):
        expected = plain_search(model, some[index])
        for place, (ids, score) in enumerate(expected):
            assert hypotheses.ids[place, : hypotheses.lengths[place]].tolist() == ids
            assert hypotheses.scores[place] == pytest.approx(score, abs=1e-4)


@pytest.fixture(scope="module")
def greedy(model: Transformer) -> Engine:
    return Engine([model], beam(1, prefixes=True), rows=4, devices=jax.devices()[:1])


def test_a_prefix_of_an_output_gives_that_output(greedy: Engine, requests: list[Request]) -> None:
    """D9: each beginning of each greedy output, down to all of it but its end."""
    checked = 0
    for request in requests[:6]:
        ((_, free),) = greedy.search([request])
        ids = free.ids[0, : free.lengths[0]].tolist()
        asked_again = [asked(request.source, prefix=ids[:length]) for length in range(len(ids))]
        for _, forced in greedy.search(asked_again):
            assert forced.ids.tolist() == free.ids.tolist()
            np.testing.assert_allclose(forced.totals, free.totals, atol=1e-4)
            checked += 1
    assert checked > 30


def test_each_row_has_rules_of_its_own(greedy: Engine, requests: list[Request]) -> None:
    """Limits, shortest lengths and prefixes, together in one block."""
    source = requests[0].source
    rules = [
        {"limit": 0},
        {"limit": 3},
        {"limit": 20, "minimum": 20},
        {"limit": 20, "prefix": [7] * 20},
        {"limit": 2, "minimum": 2, "prefix": [9]},
    ]
    shape = (WIDTH, LENGTH)
    made = [Request(source=source, shape=shape, **fields) for fields in rules]
    lengths, ids = {}, {}
    for index, hypotheses in greedy.search(made):
        lengths[index] = int(hypotheses.lengths[0])
        ids[index] = hypotheses.ids[0, : lengths[index]].tolist()
    assert ids[0] == [EOS]
    assert 1 <= lengths[1] <= 4
    assert lengths[2] == 21
    assert ids[3] == [7] * 20 + [EOS]
    assert (lengths[4], ids[4][0], ids[4][2]) == (3, 9, EOS)
