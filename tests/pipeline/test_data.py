import pytest

from transduce.checkpoints import Workdir
from transduce.config import CorpusConfig, DataConfig, RequestError, VocabularyConfig
from transduce.pipeline.data import Data, prepare_data


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


def prepared(tmp_path, *corpora: CorpusConfig, rows: int = 300, **vocabulary) -> Data:
    config = DataConfig(
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
    train = data.splits["train"]
    assert len(train) == 60
    assert [train[index] for index in range(60)] == list(train) == expected
    assert [train[index] for index in (-1, -10, -11, -60)] == [
        expected[index] for index in (-1, -10, -11, -60)
    ]
    for index in (60, -61):
        with pytest.raises(IndexError):
            train[index]
    assert [source for source, _ in data.splits["dev"]] == [
        "one en dev",
        "two en dev",
        "three en dev",
    ]
    assert [source for source, _ in data.splits["test"]] == ["two en test", "three en test"]
    assert data.selection.kept.tolist() == list(range(60))


def test_a_single_corpus_without_a_test_split_has_none(tmp_path) -> None:
    data = prepared(tmp_path, corpus(tmp_path, "one", lines=50, test=False))
    assert sorted(data.splits) == ["dev", "train"]
    assert list(data.splits["dev"]) == [("one en dev", "one de dev")]


def test_no_corpus_is_refused(tmp_path) -> None:
    with pytest.raises(RequestError, match=r"data\.corpora is empty"):
        prepared(tmp_path)


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
