"""Treebanks as corpora: words are the source, symbols the target."""

import gzip
from pathlib import Path

import pytest

from transduce.config import CorpusConfig, RequestError
from transduce.text.corpora import prepare, training_sentences

FIRST = "(S (NP (DT The) (NN cell)) (VP (VBZ grows)) (. .))"
PAIR = ("The cell grows .", "(S (NP DT NN )NP (VP VBZ )VP . )S")


def treebank(train: tuple[str, str], **changes) -> CorpusConfig:
    return CorpusConfig(
        name="trees",
        source_language="en",
        target_language="trees",
        builder="treebank",
        train=train,
        **changes,
    )


def pairs(corpus: CorpusConfig, folder: Path) -> dict[str, list[tuple[str, str]]]:
    splits = prepare(corpus, folder=str(folder), cache=str(folder / "cache"))
    return {name: list(split) for name, split in splits.items()}


def test_a_file_of_trees_is_words_and_symbols(tmp_path: Path) -> None:
    """Cleaned: without root, traces and function tags; -LRB- is a word."""
    (tmp_path / "train.trees.gz").write_bytes(gzip.compress(f"(S1 {FIRST})\n".encode()))
    text = "(TOP (NP-SBJ (-NONE- *) (-LRB- -LRB-)\n (NN a\u2028b)))\n(TOP )\n"
    (tmp_path / "dev.trees").write_bytes(text.encode())
    corpus = treebank(("train.trees.gz", ""), dev=("dev.trees", ""))
    assert pairs(corpus, tmp_path) == {
        "train": [PAIR],
        "dev": [("-LRB- a\u2028b", "(NP -LRB- NN )NP"), ("", "")],
    }


def test_sections_of_the_penn_treebank_and_folders_of_trees(tmp_path: Path) -> None:
    for section in (2, 3, 22):
        folder = tmp_path / "LDC" / "parsed" / "mrg" / "wsj" / f"{section:02}"
        folder.mkdir(parents=True)
        (folder / f"wsj_{section:02}01.mrg").write_text(f"( (NP (CD {section})) )\n")
    corpus = treebank(("LDC", "02-03"), dev=("LDC", "22"), test=("LDC/parsed/mrg", ""))
    symbols = "(NP CD )NP"
    assert pairs(corpus, tmp_path) == {
        "train": [("2", symbols), ("3", symbols)],
        "dev": [("22", symbols)],
        "test": [("2", symbols), ("3", symbols), ("22", symbols)],
    }


def test_another_tree_is_another_data_set(tmp_path: Path) -> None:
    corpus = treebank(("train.trees", ""))
    (tmp_path / "train.trees").write_text(FIRST)
    assert pairs(corpus, tmp_path) == {"train": [PAIR]}
    (tmp_path / "train.trees").write_text("(NP (NN cell))")
    assert pairs(corpus, tmp_path) == {"train": [("cell", "(NP NN )NP")]}


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (("none.trees", ""), "none.trees: corpus trees has no such file .train.; relative paths"),
        (("broken.trees", ""), "broken.trees, line 2: the tree that begins here is not closed"),
        (("empty.trees", ""), "empty.trees: has no tree"),
        ((".", "02"), "has no section 02"),
    ],
)
def test_trees_that_cannot_be_read_are_refused_and_nothing_is_left(
    tmp_path: Path, train: tuple[str, str], message: str
) -> None:
    (tmp_path / "broken.trees").write_text(f"{FIRST}\n(S (NP")
    (tmp_path / "empty.trees").write_text("\n")
    with pytest.raises(RequestError, match=message):
        pairs(treebank(train), tmp_path)
    assert not (tmp_path / "cache").exists()


def test_a_vocabulary_of_trees_is_trained_on_words_alone(tmp_path: Path) -> None:
    (tmp_path / "train.trees").write_text("".join(f"(NP (CD {n}))\n" for n in range(6)))
    corpus = treebank(("train.trees", ""))
    splits = [prepare(corpus, folder=str(tmp_path), cache=str(tmp_path / "cache"))["train"]]
    assert list(training_sentences(splits, limit=3, sources_alone=True)) == ["0", "2", "4"]
    found = list(training_sentences(splits, limit=4))
    assert found == ["0", "(NP CD )NP", "3", "(NP CD )NP"]
