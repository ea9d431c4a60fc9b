import itertools
import math
import pickle
import random
import shutil
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce import arrays
from transduce.config import RequestError, VocabularyConfig
from transduce.text.vocabulary import EOS, Vocabulary, open_vocabulary, train_vocabulary

SPECIAL = {arrays.PAD, arrays.BOS, arrays.EOS, arrays.UNK}
BYTES = range(4, 260)
SYMBOLS = ["<s>", "</s>", "<pad>", "<unk>", "<0x41>", "\u2581", "\u2585", "\u2047"]
SPACES = [" ", "  ", "\t", "\r", "\u00a0", "\u2028", "\x85", "\x0b", "\x0c", "\u3000"]

words = ["the", "a", "man", "woman", "dog", "runs", "reads", "house", "houses", "running", "reader"]
generator = random.Random(1)
invented = [
    "".join(generator.choices("abdeghimnorsu", k=length))
    for length in range(2, 10)
    for _ in range(20)
]
SENTENCES = [" ".join(generator.choices(words + invented, k=12)) + " ." for _ in range(300)]

texts = st.one_of(
    st.text(st.characters(exclude_characters="\0\n", exclude_categories=["Cs"])),
    st.lists(st.sampled_from([*SYMBOLS, *SPACES, *words])).map("".join),
)


def config(**changes) -> VocabularyConfig:
    return VocabularyConfig(**{"size": 300, **changes})


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def vocabulary(request, tmp_path_factory) -> Vocabulary:
    path = tmp_path_factory.mktemp("vocabulary") / "model"
    train_vocabulary(SENTENCES, config=config(kind=request.param), path=path)
    return Vocabulary(path)


def train(tmp_path: Path, sentences, **changes) -> Vocabulary:
    train_vocabulary(sentences, config=config(**changes), path=tmp_path / "model")
    return Vocabulary(tmp_path / "model")


@settings(max_examples=300, deadline=None)
@given(text=texts, seed=st.integers(0, 2**32), rate=st.floats(0.01, 0.99))
def test_decoding_inverts_encoding(vocabulary: Vocabulary, text: str, seed, rate) -> None:
    for ids in (
        vocabulary.encode(text),
        vocabulary.sample(text, np.random.default_rng(seed), rate),
    ):
        assert ids[-1] == EOS
        assert not SPECIAL.intersection(ids[:-1])
        assert vocabulary.decode(ids) == text


@settings(deadline=None)
@given(batch=st.lists(texts))
def test_many_texts_are_encoded_as_one_by_one(vocabulary: Vocabulary, batch: list[str]) -> None:
    assert vocabulary.encode_many(batch) == [vocabulary.encode(text) for text in batch]


def test_decoding_stops_at_the_first_end(vocabulary: Vocabulary) -> None:
    man, dog = vocabulary.encode("man")[:-1], vocabulary.encode("dog")[:-1]
    ids = [arrays.BOS, *man, arrays.PAD, *dog, EOS, *man, EOS]
    assert vocabulary.decode(ids) == "man dog"
    assert vocabulary.decode(np.array(ids, np.int32).tolist()) == "man dog"
    assert vocabulary.decode([EOS, *man]) == vocabulary.decode([]) == ""


def test_no_ids_decode_to_a_newline(vocabulary: Vocabulary) -> None:
    newline = BYTES[0x0A]
    assert vocabulary.decode([newline, EOS]) == "\u2581"


def test_an_id_beyond_the_pieces_is_an_error(vocabulary: Vocabulary) -> None:
    with pytest.raises(IndexError):
        vocabulary.decode([len(vocabulary)])


def test_the_size_is_exactly_as_asked(vocabulary: Vocabulary) -> None:
    assert len(vocabulary) == len(vocabulary.pieces()) == 300


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_largest_possible_size_is_said(tmp_path: Path, kind: str) -> None:
    with pytest.raises(RequestError, match=r"size 9999 is too large.* at most \d+ p") as caught:
        train(tmp_path, SENTENCES, kind=kind, size=9999)
    assert list(tmp_path.iterdir()) == []
    largest = int(str(caught.value).split()[-2])
    assert len(train(tmp_path, SENTENCES, kind=kind, size=largest)) == largest


def test_the_smallest_possible_size_is_said(tmp_path: Path) -> None:
    # 4 special symbols, 256 bytes, and the characters a, b and the space.
    with pytest.raises(RequestError, match=r"size 262 is too small.* are 263 pieces"):
        train(tmp_path, ["ab ab"], size=262)
    assert len(train(tmp_path, ["ab ab"], size=263)) == 263


@pytest.mark.parametrize("sentences", [[], ["", ""]])
def test_a_training_text_without_words_is_refused(tmp_path: Path, sentences) -> None:
    with pytest.raises(RequestError, match="has no words"):
        train(tmp_path, sentences)


def test_a_fault_of_the_sentences_is_raised_as_it_is(tmp_path: Path) -> None:
    def sentences():
        yield "fine"
        raise RequestError("line 2 is not UTF-8")

    with pytest.raises(RequestError, match=r"^line 2 is not UTF-8$"):
        train(tmp_path, sentences())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_training_repeats_to_the_byte_in_silence(tmp_path: Path, capfd, kind: str) -> None:
    first = train(tmp_path, SENTENCES, kind=kind).fingerprint
    data = (tmp_path / "model").read_bytes()
    assert train(tmp_path, iter(SENTENCES), kind=kind).fingerprint == first
    assert (tmp_path / "model").read_bytes() == data
    assert len(first) == 16
    assert train(tmp_path, SENTENCES[150:], kind=kind).fingerprint != first
    assert capfd.readouterr() == ("", "")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_vocabulary_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(RequestError, match="folder: cannot write the vocabulary"):
        train_vocabulary(SENTENCES, config=config(), path=tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_pieces_of_odd_spaces_survive(tmp_path: Path, kind: str) -> None:
    """T8: size and ids survive save and load."""
    odd = ["\u00a0", "\r", "\u2028", "\x85", "\x0c"]
    sentences = [f"a{space}b{space}" for space in odd] * 20
    trained = train(tmp_path, sentences, kind=kind, size=270)
    shutil.copy(tmp_path / "model", tmp_path / "copy")
    copy = Vocabulary(tmp_path / "copy")
    # The format's own reader, as an independent witness.
    witness = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "model"))
    assert len(trained) == len(copy) == len(witness) == 270
    pieces = [piece for piece, _ in copy.pieces()]
    assert pieces == [witness.id_to_piece(index) for index in range(270)]
    for space in odd:
        assert space in pieces
        ids = copy.encode(f"a{space}a")
        assert ids == trained.encode(f"a{space}a")
        assert not set(BYTES).intersection(ids)


def test_long_sentences_are_trained_on(tmp_path: Path) -> None:
    long = " ".join(["encyclopaedia"] * 1000)
    pieces = {piece for piece, _ in train(tmp_path, [*SENTENCES, long]).pieces()}
    assert "\u2581encyclopaedia" in pieces


def test_sentences_with_reserved_characters_are_trained_on(tmp_path: Path) -> None:
    odd = ["zebra\u2585zebra\u2581zebra\tzebra"] * 100
    pieces = {piece for piece, _ in train(tmp_path, [*SENTENCES, *odd]).pieces()}
    assert "zebra" in pieces
    assert "\u2585" not in pieces


def test_text_like_symbols_can_be_trained_on(tmp_path: Path) -> None:
    vocabulary = train(tmp_path, [*SENTENCES, *["<s> </s> <pad> <unk> <0x41>"] * 500])
    text = "<s></s> <pad><unk><0x41>"
    ids = vocabulary.encode(text)
    assert not SPECIAL.intersection(ids[:-1])
    assert vocabulary.decode(ids) == text


def test_without_byte_fallback_odd_characters_are_unknown(tmp_path: Path) -> None:
    vocabulary = train(tmp_path, SENTENCES, size=60, byte_fallback=False)
    assert arrays.UNK in vocabulary.encode("man \u4e2d dog")
    assert arrays.UNK not in vocabulary.encode("man dog")


def test_normalization_is_as_configured(tmp_path: Path) -> None:
    sentences = [sentence.replace("house", "\ufb01ne") for sentence in SENTENCES]
    kept = train(tmp_path, sentences)
    assert kept.decode(kept.encode("\ufb01ne")) == "\ufb01ne"
    folded = train(tmp_path, sentences, normalization="nfkc")
    assert folded.decode(folded.encode("\ufb01ne")) == "fine"


def sampled(vocabulary: Vocabulary, seed: int) -> list[list[int]]:
    return [
        vocabulary.sample(sentence, np.random.default_rng([seed, number]), 0.6)
        for number, sentence in enumerate(SENTENCES[:50])
    ]


def test_sampling_depends_on_its_generator_alone(vocabulary: Vocabulary) -> None:
    """T9: epochs differ in segmentation, and each can be repeated."""
    first, second = sampled(vocabulary, 1), sampled(vocabulary, 2)
    assert sum(a != b for a, b in zip(first, second, strict=True)) > 25
    sentencepiece.set_random_generator_seed(3)
    assert sampled(vocabulary, 1) == first
    assert sampled(pickle.loads(pickle.dumps(vocabulary)), 1) == first
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(sampled, itertools.repeat(vocabulary), [1, 2] * 8))
    assert runs == [first, second] * 8


def test_sentencepiece_has_a_generator_for_each_thread(vocabulary: Vocabulary) -> None:
    """What sampling relies on: another thread's seed, set in between, changes nothing."""

    def draw(seed: int, between: threading.Barrier | None = None) -> list[int]:
        sentencepiece.set_random_generator_seed(seed)
        if between:
            between.wait(60)
        processor = vocabulary._processor
        return processor.encode(SENTENCES[0], enable_sampling=True, alpha=0.4, nbest_size=-1)

    alone = [draw(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(draw, range(4), [threading.Barrier(4)] * 4))
    assert together == alone
    assert len({tuple(ids) for ids in alone}) > 1


def test_encoding_is_not_sampled(vocabulary: Vocabulary) -> None:
    """T9: dev and translate never differ."""
    before = [vocabulary.encode(sentence) for sentence in SENTENCES]
    sampled(vocabulary, 1)
    assert [vocabulary.encode(sentence) for sentence in SENTENCES] == before


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_bpe_sampling_drops_merges_at_the_rate(tmp_path: Path, rate: float) -> None:
    vocabulary = train(tmp_path, ["a a a b"] * 10, size=264)
    # The only merge of the text: a space and a.
    assert vocabulary.encode("a") == [260, EOS]
    rng = np.random.default_rng(1)
    count = 4000
    split = sum(len(vocabulary.sample("a", rng, rate)) == 3 for _ in range(count))
    deviation = math.sqrt(count * rate * (1 - rate))
    assert abs(split - count * rate) < 4 * deviation


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.8])
def test_unigram_sampling_follows_the_smoothed_probabilities(tmp_path: Path, rate: float) -> None:
    vocabulary = train(tmp_path, SENTENCES, kind="unigram")
    text = "reader"
    scores = {piece: (index, score) for index, (piece, score) in enumerate(vocabulary.pieces())}
    weights = {}
    marked = "\u2581" + text
    for cuts in itertools.product([False, True], repeat=len(text)):
        bounds = [0, *(place + 1 for place, cut in enumerate(cuts) if cut), len(marked)]
        parts = [marked[a:b] for a, b in itertools.pairwise(bounds)]
        if all(part in scores for part in parts):
            total = sum(scores[part][1] for part in parts)
            ids = tuple(scores[part][0] for part in parts)
            weights[ids] = math.exp(total * (1 - rate) / rate)
    assert len(weights) > 3
    rng = np.random.default_rng(1)
    count = 4000
    drawn = Counter(tuple(vocabulary.sample(text, rng, rate)[:-1]) for _ in range(count))
    assert drawn.keys() <= weights.keys()
    for ids, weight in weights.items():
        p = weight / sum(weights.values())
        assert abs(drawn[ids] - count * p) < 4.5 * math.sqrt(count * p * (1 - p)) + 1


def test_a_missing_vocabulary_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="missing: cannot read the vocabulary: No such file"):
        Vocabulary(tmp_path / "missing")


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    train(tmp_path, SENTENCES)
    whole = (tmp_path / "model").read_bytes()
    for data in (b"", b"a man\nruns\n", whole[: len(whole) // 2]):
        (tmp_path / "model").write_bytes(data)
        with pytest.raises(RequestError, match="model: is not a SentencePiece model"):
            Vocabulary(tmp_path / "model")


def test_other_special_ids_are_refused(tmp_path: Path) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_prefix=str(tmp_path / "other"),
        vocab_size=60,
        minloglevel=2,
    )
    with pytest.raises(RequestError, match=r"must be pieces 0, 1, 2 and 3, not -1, 1, 2, 0"):
        Vocabulary(tmp_path / "other.model")


def never() -> list[str]:
    raise AssertionError("the vocabulary is there already")


def test_a_vocabulary_is_trained_once(tmp_path: Path) -> None:
    path = tmp_path / "workdir" / "vocabulary.model"
    made = open_vocabulary(path, config=config(), sentences=lambda: SENTENCES)
    assert len(made) == 300
    again = open_vocabulary(path, config=config(), sentences=never)
    assert again.fingerprint == made.fingerprint
    with pytest.raises(
        RequestError, match=f"{path} holds 300 pieces, but data.vocabulary.size is 290"
    ):
        open_vocabulary(path, config=config(size=290), sentences=never)


def test_an_existing_model_is_copied(tmp_path: Path) -> None:
    given = train(tmp_path, SENTENCES)
    model = str(tmp_path / "model")
    changed = config(size=5000, source_model=model, target_model=model)
    path = tmp_path / "workdir" / "vocabulary.model"
    copy = open_vocabulary(path, config=changed, sentences=never)
    assert copy.fingerprint == given.fingerprint
    (tmp_path / "model").unlink()
    assert open_vocabulary(path, config=changed, sentences=never).fingerprint == given.fingerprint


def test_separate_vocabularies_are_refused(tmp_path: Path) -> None:
    """R16: an error that names both files and both sizes."""
    source, target = tmp_path / "en.model", tmp_path / "de.model"
    train_vocabulary(SENTENCES, config=config(), path=source)
    train_vocabulary(SENTENCES, config=config(size=310), path=target)
    both = config(source_model=str(source), target_model=str(target))
    with pytest.raises(RequestError, match=r"share one table") as caught:
        open_vocabulary(tmp_path / "workdir" / "model", config=both, sentences=never)
    assert f"{source} (300 pieces) and {target} (310 pieces)" in str(caught.value)
    assert not (tmp_path / "workdir").exists()
