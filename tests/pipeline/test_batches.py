import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from transduce.arrays import EOS, PAD, Batch, Tokens
from transduce.config import DataConfig, ModelConfig, VocabularyConfig
from transduce.model.transformer import Transformer
from transduce.pipeline.batches import TrainingBatches, evaluation_batches
from transduce.pipeline.readers import Corpus
from transduce.text.vocabulary import Vocabulary, train_vocabulary
from transduce.training.objective import objective

from .examples import Words, sentences

type Ids = tuple[int, ...]

PAIRS = sentences(53, seed=1)
CONFIG = DataConfig(readers=3, rows=6, row_length=12, packing_bins=4)


@pytest.fixture(scope="module")
def subwords(tmp_path_factory) -> Vocabulary:
    path: Path = tmp_path_factory.mktemp("vocabulary") / "model"
    texts = [text for pair in sentences(400, seed=2) for text in pair]
    train_vocabulary(texts, config=VocabularyConfig(size=290), path=path)
    return Vocabulary(path)


def as_it_is(batch: Batch) -> Batch:
    return batch


def stream(
    vocabulary: Vocabulary,
    *,
    pairs=PAIRS,
    kept=None,
    state=None,
    **changes,
) -> TrainingBatches:
    """The training batches of one corpus, on the host."""
    corpus = Corpus(source=pairs, kept=np.arange(len(pairs)) if kept is None else np.array(kept))
    config = replace(CONFIG, **changes)
    return TrainingBatches([corpus], vocabulary, config, place=as_it_is, state=state)


def batches(count: int, vocabulary: Vocabulary, **changes) -> list[Batch]:
    iterator = stream(vocabulary, **changes)
    found = list(islice(iterator, count))
    iterator.close()
    return found


def sequences(tokens: Tokens, row: int) -> list[Ids]:
    """The ids of segments 1, 2, ... of a row, which must be well-formed."""
    ids, segments, positions = (
        np.asarray(part)[row] for part in (tokens.ids, tokens.segments, tokens.positions)
    )
    count = int(segments.max())
    lengths = [int((segments == number).sum()) for number in range(1, count + 1)]
    used = sum(lengths)
    # In order, without a gap, and then nothing.
    numbers = np.repeat(np.arange(1, count + 1), lengths)
    assert segments.tolist() == [*numbers, *[0] * (len(ids) - used)]
    assert positions.tolist() == [
        *(position for length in lengths for position in range(length)),
        *[0] * (len(ids) - used),
    ]
    assert not ids[used:].any()
    assert PAD not in ids[:used]
    made = [tuple(ids[segments == number].tolist()) for number in range(1, count + 1)]
    assert all(sequence[-1] == EOS and EOS not in sequence[:-1] for sequence in made)
    return made


def pairs_of(batch: Batch) -> list[list[tuple[Ids, Ids]]]:
    """The sentence pairs of each row."""
    rows = range(len(batch.source.ids))
    return [
        list(zip(sequences(batch.source, row), sequences(batch.target, row), strict=True))
        for row in rows
    ]


def encoded(vocabulary: Vocabulary, pairs=PAIRS) -> list[tuple[Ids, Ids]]:
    return [(tuple(vocabulary.encode(s)), tuple(vocabulary.encode(t))) for s, t in pairs]


def by_reader(found: list[Batch], readers: int) -> list[list[tuple[Ids, Ids]]]:
    """What each reader packed, in the order of its rows."""
    rows = len(found[0].source.ids) // readers
    return [
        [
            pair
            for batch in found
            for row in pairs_of(batch)[reader * rows : (reader + 1) * rows]
            for pair in row
        ]
        for reader in range(readers)
    ]


def in_turn(streams: list[list[tuple[Ids, Ids]]]) -> Iterator[tuple[Ids, Ids]]:
    """Examples in the order in which the readers share them out, until one reader ends."""
    for examples in zip(*streams, strict=False):
        yield from examples


def same(left: Batch, right: Batch) -> bool:
    def arrays(batch: Batch) -> list:
        sides = (batch.source, batch.target)
        return [part for side in sides for part in (side.ids, side.segments, side.positions)]

    return all(map(np.array_equal, arrays(left), arrays(right)))


def test_every_pair_occurs_once_an_epoch_and_whole_over_all_readers() -> None:
    vocabulary = Words()
    # With one row filled at a time a reader's rows tell the order in which it took examples.
    streams = by_reader(batches(40, vocabulary, packing_bins=1), readers=3)
    examples = list(in_turn(streams))
    expected = Counter(encoded(vocabulary))
    assert len(examples) > 4 * 53
    epochs = [examples[start : start + 53] for start in range(0, 4 * 53, 53)]
    for epoch in epochs:
        assert Counter(epoch) == expected
    assert len({tuple(epoch) for epoch in epochs}) == 4
    other_seed = batches(8, vocabulary, packing_bins=1, seed=2)
    assert list(in_turn(by_reader(other_seed, readers=3)))[:53] != epochs[0]


def test_first_fit_loses_and_repeats_nothing() -> None:
    vocabulary = Words()
    # Every 2 batches a reader has given out all 4 rows that it filled together.
    packed = by_reader(batches(20, vocabulary), readers=3)
    plain = by_reader(batches(40, vocabulary, packing_bins=1), readers=3)
    for some, all_in_order in zip(packed, plain, strict=True):
        assert Counter(some) == Counter(all_in_order[: len(some)])


def test_the_pairs_that_were_not_selected_never_occur() -> None:
    vocabulary = Words()
    kept = [index for index in range(53) if index % 3]
    found = by_reader(batches(40, vocabulary, kept=kept), readers=3)
    expected = {encoded(vocabulary)[index] for index in kept}
    assert {pair for reader in found for pair in reader} == expected


def test_a_corpus_of_one_pair_fills_batches() -> None:
    vocabulary = Words()
    found = batches(3, vocabulary, pairs=[("a b", "c")])
    a, b, c = (vocabulary.ids[word] for word in "abc")
    # A row of 12 holds four times the three tokens of the source.
    assert [pairs_of(batch) for batch in found] == [[[((a, b, EOS), (c, EOS))] * 4] * 6] * 3


def test_batches_have_the_shape_of_the_configuration() -> None:
    for batch in batches(2, Words()):
        for side in (batch.source, batch.target):
            for part in (side.ids, side.segments, side.positions):
                assert (part.shape, part.dtype) == ((6, 12), np.int32)


@pytest.mark.parametrize("sampling", [0.0, 0.3])
def test_the_batch_of_a_step_depends_on_seed_and_step_alone(subwords, sampling) -> None:
    """R4: also after the state went through a file, at any step."""
    settings = {"row_length": 24, "subword_sampling": sampling, "seed": 7}
    # Five or six batches are an epoch.
    straight = batches(20, subwords, **settings)
    again = batches(20, subwords, **settings, prefetch=5)
    assert all(map(same, straight, again))
    assert not any(map(same, straight, batches(20, subwords, **settings | {"seed": 8})))

    iterator = stream(subwords, **settings)
    states = {0: json.dumps(iterator.get_state())}
    for step in range(1, 16):
        next(iterator)
        states[step] = json.dumps(iterator.get_state())
    iterator.close()
    for step in range(16):
        restored = stream(subwords, **settings, state=json.loads(states[step]))
        assert json.dumps(restored.get_state()) == states[step]
        assert all(map(same, islice(restored, 4), straight[step:]))
        restored.close()


def test_the_state_is_a_few_numbers_for_each_reader() -> None:
    iterator = stream(Words(), readers=3, pairs=sentences(500, seed=3))
    sizes = []
    for _ in range(12):
        next(iterator)
        sizes.append(len(json.dumps(iterator.get_state())))
    iterator.close()
    assert max(sizes) < 3 * 200


def test_epochs_differ_in_segmentation_when_it_is_sampled(subwords) -> None:
    """T9: and the text is always the same."""
    settings = {"row_length": 40, "packing_bins": 1}
    sampled = list(in_turn(by_reader(batches(30, subwords, **settings, subword_sampling=0.3), 3)))
    plain = list(in_turn(by_reader(batches(30, subwords, **settings), 3)))
    epochs = [sampled[:53], sampled[53:106]]

    def texts(examples):
        return [tuple(map(subwords.decode, pair)) for pair in examples]

    for epoch in epochs:
        assert Counter(texts(epoch)) == Counter(PAIRS)
    assert texts(sampled[:106]) == texts(plain[:106])
    assert plain[:53] != sampled[:53]
    segmented = [{subwords.decode(source): source for source, _ in epoch} for epoch in epochs]
    differing = [text for text, ids in segmented[0].items() if segmented[1][text] != ids]
    assert len(differing) > 25
    assert set(plain) <= set(encoded(subwords))


def test_a_sampled_segmentation_that_does_not_fit_gives_way_to_the_plain_one() -> None:
    vocabulary = Words()
    # 7 letters and EOS fit 8; 8 letters and EOS do not.
    pairs = [("abcd efg", "abcd efgh")] * 4
    plain = (vocabulary.ids.setdefault("abcd", 4), vocabulary.ids.setdefault("efgh", 5), EOS)
    found = batches(2, vocabulary, pairs=pairs, row_length=8, subword_sampling=0.5)
    for batch in found:
        for row in pairs_of(batch):
            assert [target for _, target in row] == [plain]
            assert [len(source) for source, _ in row] == [8]


LONG = " ".join(["word"] * 399), " ".join(["w"] * 20)


def test_an_evaluation_has_every_pair_once_in_batches_of_one_shape() -> None:
    vocabulary = Words()
    pairs = [*PAIRS, ("", ""), PAIRS[0]]
    found = list(evaluation_batches(pairs, vocabulary, CONFIG, rows=8))
    assert {batch.source.ids.shape for batch in found} == {(8, 12)}
    assert {batch.target.ids.shape for batch in found} == {(8, 12)}
    rows = [row for batch in found for row in pairs_of(batch)]
    assert Counter(pair for row in rows for pair in row) == Counter(encoded(vocabulary, pairs))
    assert any(not row for row in rows)
    filled = [bool(row) for row in rows]
    assert filled == sorted(filled, reverse=True)
    assert len(rows) - sum(filled) < 8


def test_a_sentence_that_fits_no_row_is_evaluated_in_wider_rows() -> None:
    """T6: 400 tokens, with rows of 64."""
    vocabulary = Words()
    config = replace(CONFIG, row_length=64)
    pairs = [*PAIRS, LONG]
    found = list(evaluation_batches(pairs, vocabulary, config, rows=16, multiple=2))
    # 400 tokens need 7 times 64; 16 // 7 rows hold no more tokens than 16 rows of 64.
    assert {batch.source.ids.shape for batch in found} == {(2, 448)}
    everything = [pair for batch in found for row in pairs_of(batch) for pair in row]
    assert Counter(everything) == Counter(encoded(vocabulary, pairs))
    few = list(evaluation_batches(pairs, vocabulary, config, rows=8, multiple=8))
    assert {batch.source.ids.shape for batch in few} == {(8, 448)}


def test_evaluation_never_samples_a_segmentation(subwords) -> None:
    """T9."""
    config = replace(CONFIG, row_length=40, subword_sampling=0.9)
    found = evaluation_batches(PAIRS, subwords, config, rows=8)
    everything = [pair for batch in found for row in pairs_of(batch) for pair in row]
    assert Counter(everything) == Counter(encoded(subwords))


def test_the_loss_over_packed_rows_is_the_sum_of_that_of_its_pairs() -> None:
    vocabulary = Words()
    pairs = [*sentences(12, seed=4), (" ".join(["a"] * 30), "a b c")]
    config = replace(CONFIG, row_length=16)
    packed = list(evaluation_batches(pairs, vocabulary, config, rows=4))
    single = replace(CONFIG, row_length=32)
    alone = [
        batch for pair in pairs for batch in evaluation_batches([pair], vocabulary, single, rows=1)
    ]
    assert len(alone) == 13 > sum(map(len, map(pairs_of, packed)))
    sizes = ModelConfig(
        vocabulary_size=50,
        encoder_layers=1,
        decoder_layers=1,
        d_model=8,
        d_ff=8,
        heads=2,
        d_k=4,
        d_v=4,
    )
    model: Any = Transformer(sizes, rngs=nnx.Rngs(1))
    quickly = {"xla_backend_optimization_level": 0}
    sums = jax.jit(partial(objective, smoothing=0.1, chunks=1, key=None), compiler_options=quickly)

    def total(batches: list[Batch]) -> dict[str, float]:
        parts = [sums(model, batch) for batch in batches]
        return asdict(jax.tree.map(lambda *values: float(sum(values)), *parts))

    assert total(packed) == pytest.approx(total(alone), rel=1e-5)
    encoded_pairs = encoded(vocabulary, pairs)
    assert total(packed)["tokens"] == sum(len(target) for _, target in encoded_pairs)
    assert total(packed)["source_tokens"] == sum(len(source) for source, _ in encoded_pairs)
