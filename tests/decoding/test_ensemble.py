"""Several models as one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transduce.arrays import BOS, EOS, Array, Batch, Tokens
from transduce.decoding.ensemble import Caches, mean_logits, step_all
from transduce.model.cached import Written
from transduce.model.layers import LayerCache, LayerMemory
from transduce.model.stepping import DecoderCache, Memory, Stepper
from transduce.model.transformer import Transformer

from ..model.examples import QUICKLY, filled, packed, random_pairs, tiny

SENTENCES, BEAMS, LENGTH, VOCABULARY = 2, 3, 4, 11


def test_the_mean_is_of_probabilities() -> None:
    """Not of logits: of (0.9, 0.1) and (0.2, 0.8) it is (0.55, 0.45), whatever is added to all."""
    one, two = jnp.log(jnp.asarray([0.9, 0.1])), jnp.log(jnp.asarray([0.2, 0.8])) + 7
    np.testing.assert_allclose(np.exp(mean_logits([one, two])), [0.55, 0.45], rtol=1e-6)
    three = np.exp(mean_logits([one, two, one]))
    np.testing.assert_allclose(three, [2 / 3, 1 / 3], rtol=1e-6)


def test_what_one_model_excludes_another_may_write() -> None:
    """Of probabilities 0 and 1 the mean is a half."""
    one, two = jnp.asarray([200.0, 0.0]), jnp.asarray([0.0, 200.0])
    np.testing.assert_allclose(np.exp(mean_logits([one, two])), [0.5, 0.5], rtol=1e-6)


def test_one_model_is_as_it_is() -> None:
    logits = jnp.asarray([1.0, 2.0])
    assert mean_logits([logits]) is logits


def random_cache(rng: np.random.Generator, *, rows: int, beams: int, width: int) -> DecoderCache:
    """Room for 96 pieces, of which 32 are recent; 1 to 65 are written."""

    def entries(room: int) -> Written:
        keys, values = rng.random((2, rows, beams, 2, room, width), np.float32)
        return Written(keys=jnp.asarray(keys), values=jnp.asarray(values))

    memory = LayerMemory(keys=jnp.zeros((rows, 2, 3, 1)), values=jnp.zeros((rows, 2, 3, 1)))
    return DecoderCache(
        layers=tuple(LayerCache(old=entries(64), recent=entries(32)) for _ in range(2)),
        memory=Memory(layers=(memory, memory), visible=jnp.ones((rows, 3), bool)),
        written=jnp.asarray([1, 15, 31, 32, 33, 63, 64, 65]),
    )


def test_hypotheses_move_within_the_cache_of_each_model() -> None:
    """All that is written of those that others become; a row's own moves only."""
    rng = np.random.default_rng(0)
    rows, beams = 8, 5
    parents = np.tile(np.arange(beams), (rows, 1))
    for row in range(1, rows):
        # Any of those that stay.
        stay = rng.permutation(beams)[: rng.integers(1, beams)]
        gone = np.setdiff1d(np.arange(beams), stay)
        parents[row, gone] = rng.choice(stay, len(gone))
    before = Caches(
        caches=tuple(random_cache(rng, rows=rows, beams=beams, width=width) for width in (3, 4))
    )
    reorder = jax.jit(lambda caches, parents: caches.reorder(parents))
    after = reorder(before, jnp.asarray(parents))
    for old, new in zip(before.caches, after.caches, strict=True):
        assert new.written.tolist() == old.written.tolist()
        for row, beam in np.ndindex(rows, beams):
            # The 33rd piece makes old ones of the 32 before it.
            recent = (int(old.written[row]) - 1) % 32 + 1
            counts = {"old": int(old.written[row]) - recent, "recent": recent}
            for layers in zip(old.layers, new.layers, strict=True):
                for part, count in counts.items():
                    parts = (jax.tree.leaves(getattr(layer, part)) for layer in layers)
                    for was, now in zip(*parts, strict=True):
                        np.testing.assert_array_equal(
                            now[row, beam, :, :count], was[row, parents[row, beam], :, :count]
                        )


@functools.partial(jax.jit, compiler_options=QUICKLY)
def step_by_step(
    models: tuple[Transformer, ...], source: Tokens, fed: Array, parents: Array
) -> tuple[Array, Array]:
    """Logits [T, B, K, V] and attention after each of `fed`; then beams become `parents`."""
    steppers = tuple(map(Stepper.of, models))
    caches = [
        stepper.start(stepper.read(source), beams=BEAMS, length=LENGTH) for stepper in steppers
    ]

    def step(state: Caches, inputs: tuple[Array, Array, Array]):
        position, ids, parents = inputs
        positions = jnp.full(SENTENCES, position)
        logits, attention, state = step_all(steppers, ids, positions, state)
        return state.reorder(parents), (logits, attention)

    start = Caches(caches=tuple(caches))
    return jax.lax.scan(step, start, (jnp.arange(LENGTH), fed, parents))[1]


@functools.partial(jax.jit, compiler_options=QUICKLY)
def teacher_forcing(model: Transformer, batch: Batch) -> Array:
    return model(batch)


@pytest.fixture(scope="module")
def models() -> tuple[Transformer, ...]:
    """Two that differ in width."""
    one, two = {"decoder_layers": 1}, {"d_model": 4, "d_ff": 7, "decoder_layers": 1}
    configs = [tiny(dtype="float32", **sizes) for sizes in (one, two)]
    return tuple(filled(config, seed=seed) for seed, config in enumerate(configs))


def test_models_step_together(models: tuple[Transformer, ...]) -> None:
    """Against each model's teacher forcing, for hypotheses that change places on the way."""
    generator = np.random.default_rng(1)
    sources = [pair[0] for pair in random_pairs([(4, 1), (6, 1)], vocabulary=VOCABULARY, seed=5)]
    fed = generator.integers(3, VOCABULARY, (LENGTH, SENTENCES, BEAMS))
    fed[0] = BOS
    parents = np.broadcast_to(np.arange(BEAMS), fed.shape).copy()
    parents[1] = [[0, 0, 2], [1, 1, 1]]
    parents[2] = [[0, 2, 2], [0, 1, 0]]

    read = [[[] for _ in range(BEAMS)] for _ in range(SENTENCES)]
    pairs, places = [], []
    for position, sentence, beam in np.ndindex(fed.shape):
        if beam == 0 and position:
            before = read[sentence]
            read[sentence] = [before[parent] for parent in parents[position - 1, sentence]]
        read[sentence][beam] = [*read[sentence][beam], int(fed[position, sentence, beam])]
        pairs.append((sources[sentence], [*read[sentence][beam][1:], EOS]))
        places.append((position, sentence, beam))

    start = packed([[(source, [])] for source in sources], source_length=7, target_length=1)
    logits, attention = step_by_step(models, start.source, jnp.asarray(fed), jnp.asarray(parents))
    batch = packed([[pair] for pair in pairs], source_length=7, target_length=LENGTH)
    forced = [np.asarray(teacher_forcing(model, batch)) for model in models]
    for row, place in enumerate(places):
        each = [np.exp(one[row, place[0]].astype(np.float64)) for one in forced]
        mean = sum(one / one.sum() for one in each) / len(models)
        np.testing.assert_allclose(np.exp(logits[place]), mean, rtol=1e-4, atol=1e-6)
    # The models disagree, and so do hypotheses of a sentence.
    assert np.abs(forced[0] - forced[1]).max() > 0.5
    assert np.abs(np.diff(np.asarray(logits)[1:], axis=2)).max(axis=(1, 2, 3)).min() > 0.1

    alone = [
        step_by_step((model,), start.source, jnp.asarray(fed), jnp.asarray(parents))[1]
        for model in models
    ]
    np.testing.assert_allclose(attention, (alone[0] + alone[1]) / 2, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.sum(attention, axis=-1), 1, rtol=1e-5)
    assert not np.any(np.asarray(attention)[:, 0, :, 4:])
    assert np.abs(alone[0] - alone[1]).max() > 0.1
