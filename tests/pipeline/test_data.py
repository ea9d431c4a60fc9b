import pickle
from pathlib import Path

import pytest

from transduce.config import CorpusConfig, DataConfig, RequestError, VocabularyConfig
from transduce.pipeline import data as module
from transduce.pipeline.data import Data, prepare_data
from transduce.text import vocabulary
from transduce.text.corpora import prepare
from transduce.workdir import Workdir


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))


def corpus(folder, name: str, *, lines: int, test: bool) -> CorpusConfig:
    """Files of `lines` training pairs "NAME word I" and, as dev and test, one pair."""
    for language in ("en", "de"):
        texts = {"train": range(lines), "dev": ["dev"], "test": ["test"]}
        for split, numbers in texts.items():
            text = "".join(f"{name} {language} {number}\n" for number in numbers)
            (folder / f"{name}.{split}.{language}").write_text(text)

    def files(split: str) -> tuple[str, str]:
        return f"{name}.{split}.en", f"{name}.{split}.de"

    return CorpusConfig(
        name=name,
        source_language="en",
        target_language="de",
        train=files("train"),
        dev=files("dev"),
        test=files("test") if test else ("", ""),
    )


def prepared(
    tmp_path, *corpora: CorpusConfig, rows: int = 300, pretokenized: bool = False, **vocabulary
) -> Data:
    config = DataConfig(
        pretokenized=pretokenized,
        corpora=corpora,
        folder=str(tmp_path),
        row_length=32,
        vocabulary=VocabularyConfig(**{"size": 290, **vocabulary}),
    )
    path = Workdir.of(str(tmp_path / "workdir")).vocabulary
    return prepare_data(config, vocabulary_path=path, vocabulary_rows=rows)


def test_several_corpora_follow_one_after_the_other(tmp_path) -> None:
    first = corpus(tmp_path, "one", lines=30, test=False)
    second = corpus(tmp_path, "two", lines=20, test=True)
    third = corpus(tmp_path, "three", lines=10, test=True)
    data = prepared(tmp_path, first, second, third)
    expected = [
        (f"{name} en {number}", f"{name} de {number}")
        for name, lines in (("one", 30), ("two", 20), ("three", 10))
        for number in range(lines)
    ]
    drawn = [corpus.source[index] for corpus in data.training for index in corpus.kept]
    assert drawn == expected
    dev = data.splits["dev"]
    expected = [(f"{name} en dev", f"{name} de dev") for name in ("one", "two", "three")]
    assert len(dev) == 3
    assert [dev[index] for index in range(3)] == list(dev) == expected
    assert [dev[index] for index in (-1, -2, -3)] == expected[::-1]
    for index in (3, -4):
        with pytest.raises(IndexError):
            dev[index]
    assert [source for source, _ in data.splits["test"]] == ["two en test", "three en test"]
    assert {name: len(made.kept) for name, made in data.selections.items()} == {
        "one": 30,
        "two": 20,
        "three": 10,
    }
    assert sorted(data.fingerprints) == [
        *("one/dev", "one/train"),
        *("three/dev", "three/test", "three/train"),
        *("two/dev", "two/test", "two/train"),
    ]


def test_a_single_corpus_without_a_test_split_has_none(tmp_path) -> None:
    data = prepared(tmp_path, corpus(tmp_path, "one", lines=50, test=False))
    assert sorted(data.splits) == ["dev"]
    assert list(data.splits["dev"]) == [("one en dev", "one de dev")]


def test_no_corpus_is_refused(tmp_path) -> None:
    with pytest.raises(RequestError, match=r"data\.corpora is empty"):
        prepared(tmp_path)


def test_corpora_without_a_dev_split_are_refused(tmp_path, monkeypatch) -> None:
    def without_dev(*arguments, **options):
        return {"train": prepare(*arguments, **options)["train"]}

    monkeypatch.setattr(module, "prepare", without_dev)
    with pytest.raises(RequestError, match=r"no corpus has a dev split: name dev files"):
        prepared(tmp_path, corpus(tmp_path, "one", lines=50, test=False))


def test_the_vocabulary_is_trained_on_no_more_sentences_than_asked_for(tmp_path) -> None:
    rare = corpus(tmp_path, "one", lines=200, test=False)
    # Of 200 pairs numbers 0 and 100 are taken: no other digit than 0 and 1 is seen.
    few = prepared(tmp_path, rare, size=280, training_sentences=4, byte_fallback=True)
    pieces = {piece for piece, _ in few.vocabulary.pieces()}
    assert {"0", "1"} <= pieces
    assert not pieces & set("23456789")


def test_a_vocabulary_larger_than_the_table_is_refused(tmp_path) -> None:
    """R12."""
    one = corpus(tmp_path, "one", lines=50, test=False)
    with pytest.raises(RequestError, match=r"has 290 pieces.*model\.vocabulary_size \(289\)"):
        prepared(tmp_path, one, rows=289)
    assert len(prepared(tmp_path, one, rows=290).vocabulary) == 290


def test_pretokenised_pairs_have_the_ids_of_their_texts(tmp_path) -> None:
    one = corpus(tmp_path, "one", lines=50, test=False)
    plain = prepared(tmp_path, one)
    data = prepared(tmp_path, one, pretokenized=True)
    source = pickle.loads(pickle.dumps(data.training[0].source))
    for index in range(50):
        ids = source[index]
        texts = plain.training[0].source[index]
        assert [ids[side].tolist() for side in ("source", "target")] == [
            plain.vocabulary.encode(text) for text in texts
        ]
    files = list((tmp_path / "cache").glob("tokens-*.array_record"))
    assert len(files) == 1
    written = files[0].stat().st_mtime_ns
    prepared(tmp_path, one, pretokenized=True)
    assert files[0].stat().st_mtime_ns == written


def test_a_vocabulary_is_trained_once_for_all_runs_on_the_same_text(tmp_path, monkeypatch) -> None:
    """And anew where the text, or how it is trained, differs."""
    trained: list[int] = []
    train = vocabulary.train_vocabulary

    def counted(*arguments, config: VocabularyConfig, **more) -> None:
        trained.append(config.size)
        train(*arguments, config=config, **more)

    monkeypatch.setattr(vocabulary, "train_vocabulary", counted)
    one = corpus(tmp_path, "one", lines=30, test=False)

    def made(*corpora: CorpusConfig, **changes) -> str:
        (tmp_path / "workdir" / "vocabulary.model").unlink(missing_ok=True)
        return prepared(tmp_path, *corpora, **changes).vocabulary.fingerprint

    first = made(one)
    assert made(one) == first
    assert trained == [290]
    assert made(one, size=291) != first
    assert made(corpus(tmp_path, "two", lines=31, test=False), size=290) != first
    assert trained == [290, 291, 290]
    assert made(one) == first
    assert trained == [290, 291, 290]


def test_a_vocabulary_that_cannot_be_kept_is_refused(tmp_path, monkeypatch) -> None:
    """Prepared data that lie in the cache already are no help where it cannot be written."""
    one = corpus(tmp_path, "one", lines=30, test=False)
    prepare(one, folder=str(tmp_path))

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(vocabulary, "locked", full)
    with pytest.raises(RequestError, match=r"cannot keep the vocabulary: .*No space left on"):
        prepared(tmp_path, one)
    assert not (tmp_path / "workdir" / "vocabulary.model").exists()
