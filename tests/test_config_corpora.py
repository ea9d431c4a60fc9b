"""What a corpus' fields may be."""

import pytest

from transduce.config import CorpusConfig, DataConfig, Experiment, RequestError, TrainingConfig
from transduce.config_data import section_numbers


def corpus(**changes) -> CorpusConfig:
    files = {"train": ("a", "b"), "dev": ("c", "d")}
    names = {"name": "toy", "source_language": "en", "target_language": "de"}
    return CorpusConfig(**{**names, **files, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": 0.0}, "corpus toy: weight must be positive, not 0.0"),
        ({"weight": float("inf")}, "weight must be positive"),
        ({"weight": float("nan")}, "weight must be positive"),
        ({"tag": " a"}, "corpus toy: tag must be printable and not begin or end with a space"),
        ({"tag": "a\nb"}, "tag must be printable"),
        ({"test": ("a", "")}, "corpus toy: test must name a source and a target file"),
        ({"path": "a"}, "path is for builders tfds and wmt14, not for files"),
        ({"builder": "tfds"}, "train names files, which only builders files and treebank read"),
        (
            {"builder": "treebank", "train": ("", ""), "dev": ("", "")},
            "corpus toy: train must name a file or folder of trees first",
        ),
        (
            {"builder": "treebank", "train": ("a", ""), "dev": ("", "22")},
            "dev must name a file or folder of trees first",
        ),
        (
            {"builder": "treebank", "train": ("a", "21-02"), "dev": ("", "")},
            'sections are such as "22" or "02-21", not \'21-02\'',
        ),
        ({"builder": "tfds", "train": ("", ""), "dev": ("", "")}, "path must name the data set's"),
        (
            {"builder": "wmt14", "train": ("", ""), "dev": ("", ""), "target_language": "cs"},
            "wmt14 has en with de or fr, not en with cs",
        ),
    ],
)
def test_a_corpus_that_makes_no_sense_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        corpus(**changes)


def treebank(**changes) -> CorpusConfig:
    return corpus(**{"builder": "treebank", "train": ("a", ""), "dev": ("", ""), **changes})


def test_a_treebank_needs_no_dev_and_stands_beside_treebanks_alone() -> None:
    both = (treebank(), treebank(name="more", dev=("b", "22")))
    assert DataConfig(corpora=both).is_of_trees
    assert not DataConfig(corpora=(corpus(),)).is_of_trees
    guided = TrainingConfig(guided_attention=1.0)
    assert Experiment(name="parser", data=DataConfig(corpora=both), training=guided)
    with pytest.raises(RequestError, match=r"training\.guided_attention must be 0 where no corpus"):
        Experiment(name="text", data=DataConfig(corpora=(corpus(),)), training=guided)
    with pytest.raises(RequestError, match="a treebank stands beside corpora of text"):
        DataConfig(corpora=(treebank(), corpus(name="text")))


def test_what_is_watched_is_what_is_measured() -> None:
    trees, text = DataConfig(corpora=(treebank(),)), DataConfig(corpora=(corpus(),))
    Experiment(name="a", data=trees, training=TrainingConfig(watch="f1"))
    Experiment(name="a", data=text, training=TrainingConfig(watch="bleu"))
    with pytest.raises(RequestError, match=r"training\.watch must be loss or f1 .* not bleu"):
        Experiment(name="a", data=trees, training=TrainingConfig(watch="bleu"))
    with pytest.raises(RequestError, match=r"training\.watch must be loss or bleu .* not f1"):
        Experiment(name="a", data=text, training=TrainingConfig(watch="f1"))


def test_sections_are_numbers_and_ranges() -> None:
    assert section_numbers("22") == [22]
    assert section_numbers("02-04") == [2, 3, 4]
    assert section_numbers("0,02-03,24") == [0, 2, 3, 24]
    for wrong in ("", "a", "2-", "2,,3", "002", "\u0662"):
        with pytest.raises(RequestError, match="sections are such as"):
            section_numbers(wrong)
