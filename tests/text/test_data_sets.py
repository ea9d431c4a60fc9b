"""Data sets that TFDS prepared, used where they lie."""

import contextlib
import io
import shutil
import typing
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds

from transduce.config import CorpusConfig, RequestError
from transduce.text.corpora import prepare


class Trilingual(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A data set as others prepare it: TFDS's own way, in two files, with more than a pair."""

    VERSION = tfds.core.Version("3.1.4")
    url_infos = None
    features: tfds.features.FeaturesDict = tfds.features.Translation(["de", "en", "fr"])
    splits: typing.ClassVar[tuple[str, ...]] = ("train", "validation", "test")
    texts: typing.ClassVar[list[str]] = ["one", "two", "three"]

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(builder=self, features=self.features, disable_shuffling=True)

    def _split_generators(self, dl_manager):
        return {name: self._generate_examples(name) for name in self.splits}

    def _generate_examples(self, name):
        for number, text in enumerate(self.texts):
            yield number, {key: f"{name} {key} {text}" for key in self.features}


def make(folder: Path, *, file_format: str = "array_record", files: int = 2, **changes) -> Path:
    kind = type("Trilingual", (Trilingual,), changes, skip_registration=True)
    builder = kind(data_dir=folder, file_format=file_format)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(num_shards=files, try_download_gcs=False)
        )
    return Path(builder.data_dir)


def corpus(path: Path | str, **changes) -> CorpusConfig:
    names = {"name": "toy", "source_language": "en", "target_language": "de"}
    return CorpusConfig(**{**names, "builder": "tfds", "path": str(path), **changes})


def test_a_data_set_of_tfds_is_used_where_it_lies(tmp_path: Path, capfd) -> None:
    made = make(tmp_path / "sets")
    assert len(list(made.glob("*-train.array_record-*"))) == 2
    capfd.readouterr()
    path = made.relative_to(tmp_path)
    config = corpus(path, source_language="fr", tag="<fr>")
    splits = prepare(config, folder=str(tmp_path), cache=str(tmp_path / "cache"))
    names = {"train": "train", "dev": "validation", "test": "test"}
    assert {name: list(split) for name, split in splits.items()} == {
        ours: [
            (f"<fr> {theirs} fr {text}", f"{theirs} de {text}") for text in ("one", "two", "three")
        ]
        for ours, theirs in names.items()
    }
    assert not (tmp_path / "cache").exists()
    assert capfd.readouterr() == ("", "")


def test_a_data_set_may_have_a_train_split_alone(tmp_path: Path) -> None:
    made = make(tmp_path, splits=("train", "other"))
    assert list(prepare(corpus(made), folder="")) == ["train"]


def test_the_fingerprint_of_a_data_set_is_of_its_records(tmp_path: Path) -> None:
    """Neither of the place nor of the time; each split has its own."""
    made = make(tmp_path / "a")
    before = {name: split.fingerprint for name, split in prepare(corpus(made), folder="").items()}
    assert len(set(before.values())) == 3
    shutil.copytree(made, tmp_path / "copy")
    copied = prepare(corpus(tmp_path / "copy"), folder="")
    assert {name: split.fingerprint for name, split in copied.items()} == before
    # Another word of the same length.
    changed = make(tmp_path / "b", texts=["one", "two", "seven"])
    after = {name: split.fingerprint for name, split in prepare(corpus(changed), folder="").items()}
    assert all(after[name] != before[name] for name in before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"features": tfds.features.Translation(["en", "fr"])},
            r"3\.1\.4: has no language de; its features are en, fr$",
        ),
        (
            {"features": tfds.features.FeaturesDict({"en": tfds.features.Text(), "de": np.str_})},
            r"3\.1\.4: its feature de is not text",
        ),
        ({"splits": ("validation",)}, r"3\.1\.4: has no split train; its splits are validation$"),
        (
            {"texts": ["one\ntwo"]},
            r"3\.1\.4, train: a text has a newline or a NUL byte: b'train en",
        ),
        ({"texts": ["one\0"]}, r"3\.1\.4, train: a text has a newline or a NUL byte"),
    ],
)
def test_a_data_set_that_does_not_fit_is_refused(
    tmp_path: Path, changes: dict, message: str
) -> None:
    made = make(tmp_path, files=1, **changes)
    with pytest.raises(RequestError, match=message):
        prepare(corpus(made), folder="")["train"][0]


def test_a_folder_without_a_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        RequestError, match=f"^{tmp_path}/none: corpus toy has no dataset_info.json"
    ):
        prepare(corpus("none"), folder=str(tmp_path))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("dataset_info.json", "no JSON", "no data set in ArrayRecord files: "),
        ("dataset_info.json", None, "no data set in ArrayRecord files: .*riegeli"),
        ("features.json", "", "no data set in ArrayRecord files: "),
        ("trilingual-train.array_record-00001-of-00002", "", "cannot read: No such file"),
    ],
)
def test_a_damaged_data_set_is_refused(tmp_path: Path, name: str, text, message: str) -> None:
    made = make(tmp_path)
    if text is None:
        info = (made / name).read_text()
        (made / name).write_text(info.replace('"array_record"', '"riegeli"'))
    elif text:
        (made / name).write_text(text)
    else:
        (made / name).unlink()
    with pytest.raises(RequestError, match=f"^{made}.*{message}") as caught:
        prepare(corpus(made), folder="")
    assert "\n" not in str(caught.value)
