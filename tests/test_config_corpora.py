"""What a corpus' fields may be."""

import pytest

from transduce.config import CorpusConfig, RequestError


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
        ({"builder": "tfds"}, "train names files, which only builder files reads"),
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
