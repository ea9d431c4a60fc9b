"""The corpora that the project is developed with, where they are at hand."""

import gzip
import os
from pathlib import Path

import pytest

from transduce.config import CorpusConfig
from transduce.text.corpora import prepare
from transduce.text.lines import count_parallel


def shared_data() -> Path:
    data = Path(os.environ.get("TRANSDUCE_DATA", "../shared/data"))
    if not (data / "multi30k").is_dir():
        pytest.skip(f"{data}/multi30k is not there; $TRANSDUCE_DATA names the folder of corpora")
    return data


@pytest.mark.parametrize(
    ("name", "stems", "counts"),
    [
        ("multi30k/raw", ("train", "val", "test_2016_flickr"), (29_000, 1_014, 1_000)),
        ("tatoeba-en-de", ("train", "dev"), (153_119, 2_427)),
        ("tatoeba-en-fr", ("train", "dev"), (147_085, 1_979)),
    ],
)
def test_the_corpora_at_hand_have_the_lines_that_they_should(
    name: str, stems: tuple[str, ...], counts: tuple[int, ...]
) -> None:
    """The counts of the corpora's own descriptions."""
    data = shared_data() / name
    other = "fr" if name.endswith("fr") else "de"
    for stem, count in zip(stems, counts, strict=True):
        source, target = (data / f"{stem}.{language}.gz" for language in ("en", other))
        assert count_parallel(source, target) == count


def test_multi30k_can_be_prepared(tmp_path: Path) -> None:
    data = shared_data() / "multi30k" / "raw"
    corpus = CorpusConfig(
        name="multi30k",
        source_language="en",
        target_language="de",
        train=("train.en.gz", "train.de.gz"),
        dev=("val.en.gz", "val.de.gz"),
        test=("test_2016_flickr.en.gz", "test_2016_flickr.de.gz"),
    )
    splits = prepare(corpus, folder=str(data), cache=str(tmp_path))
    counts = {"train": 29_000, "dev": 1_014, "test": 1_000}
    assert {name: len(split) for name, split in splits.items()} == counts
    with gzip.open(data / "train.de.gz", "rt", encoding="utf-8", newline="\n") as file:
        german = [line.removesuffix("\n") for line in file]
    assert [target for _, target in splits["train"]] == german
