"""Prepared data sets: TFDS's translation format in ArrayRecord files, without TensorFlow."""

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from transduce.config import RequestError

_log = logging.getLogger(__name__)

FILE_FORMAT = "array_record"


class _Info(tfds.core.DatasetInfo):
    """Nothing about a user's corpus can be in TFDS's cloud bucket: it is not asked."""

    def initialize_from_bucket(self) -> None:
        pass


class ParallelText(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Sentence pairs in TFDS's translation format: each a dictionary of language and text."""

    VERSION = tfds.core.Version("1.0.0")
    # Nothing is downloaded here, so there are no checksums. TFDS would look for a file of them by
    # means of importlib_resources, which it does not install.
    url_infos = None

    def __init__(
        self,
        *,
        languages: tuple[str, str],
        splits: Mapping[str, Iterable[tuple[str, str]]],
        data_dir: str | os.PathLike[str],
    ):
        """`splits` gives the pairs by name; the data set is `data_dir`/parallel_text/1.0.0."""
        self._languages, self._splits = languages, splits
        super().__init__(data_dir=data_dir, file_format=FILE_FORMAT)

    def _info(self) -> tfds.core.DatasetInfo:
        return _Info(
            builder=self,
            description="Sentence pairs",
            features=tfds.features.Translation(languages=self._languages),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {name: self._generate_examples(pairs) for name, pairs in self._splits.items()}

    def _generate_examples(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Any]:
        for number, pair in enumerate(pairs):
            yield number, dict(zip(self._languages, pair, strict=True))

    def _generate_splits(self, dl_manager: Any, download_config: Any) -> list[Any]:
        """Writes each split while it is generated.

        TFDS's own method can also shuffle; for that it holds a whole split in memory, and asks
        for TensorFlow when the split is over 1 GB.
        """
        return [
            self._write_split(name, examples)
            for name, examples in self._split_generators(dl_manager).items()
        ]

    def _write_split(self, name: str, examples: Iterable[Any]) -> Any:
        features: Any = self.info.features
        serializer = tfds.core.ExampleSerializer(features.get_serialized_info())
        template = self._get_filename_template(name)
        count = size = 0

        def records() -> Iterator[tuple[int, bytes]]:
            nonlocal count, size
            for key, example in examples:
                record = serializer.serialize_example(features.encode_example(example))
                count, size = count + 1, size + len(record)
                yield key, record

        try:
            path = template.sharded_filepath(shard_index=0, num_shards=1)
            self._example_writer().write(path, records())
        except RuntimeError as error:
            # What ArrayRecord makes of a full disk and the like.
            raise OSError(str(error)) from error
        return tfds.core.SplitInfo(
            name=name, shard_lengths=[count], num_bytes=size, filename_template=template
        )


class Split:
    """The sentence pairs of a prepared split: `split[i]` is a source and a target text.

    Records are read when they are asked for. Can be pickled; the copy opens the files anew.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        languages: tuple[str, str],
        fingerprint: str,
        tag: str = "",
    ) -> None:
        """Split `name` of the TFDS data set in `directory`.

        `tag` is put before each source text with a space, but for blank ones, which stay blank.
        """
        builder: Any = tfds.builder_from_directory(directory, file_format=FILE_FORMAT)
        self._records = builder.as_data_source(name)
        self._origin = f"{directory}, {name}"
        self._languages = languages
        self._tag = f"{tag} " if tag else ""
        self.fingerprint = fingerprint
        """Of the text that the split was made of, and its tag."""

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> tuple[str, str]:
        """Raises `RequestError` when a text of the pair is not UTF-8 or has a newline or a NUL."""
        return self._pair(self._records[range(len(self))[index]])

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[str, str]]:
        """The pairs at `indices`, faster than one by one."""
        return [self._pair(record) for record in self._records.__getitems__(indices)]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return self.select(range(len(self)))

    def select(self, indices: Sequence[int]) -> Iterator[tuple[str, str]]:
        """The pairs at `indices`, read a batch at a time."""
        for start in range(0, len(indices), 1024):
            yield from self.__getitems__(indices[start : start + 1024])

    def _pair(self, record: Mapping[str, bytes]) -> tuple[str, str]:
        source, target = (self._text(record[language]) for language in self._languages)
        return (self._tag + source if self._tag and source.strip() else source), target

    def _text(self, data: bytes) -> str:
        # Data sets that others prepared may have what files of lines cannot.
        if b"\n" in data or b"\0" in data:
            raise RequestError(f"{self._origin}: a text has a newline or a NUL byte: {data!r}")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise RequestError(f"{self._origin}: a text is not UTF-8: {data!r}") from error


def require_known_features(directory: Path) -> None:
    """Raises `RequestError` when the data set in `directory` has features that TFDS does not have.

    TFDS would import the module that such a feature names.
    """
    path = directory / "features.json"
    try:
        content = json.loads(path.read_bytes()) if path.exists() else {}
    except ValueError as error:
        raise RequestError(f"{path}: not JSON: {error}") from error
    waiting = [content]
    while waiting:
        part = waiting.pop()
        waiting += (
            part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
        )
        for key in ("type", "pythonClassName", "python_class_name"):
            name = part.get(key) if isinstance(part, dict) else None
            if isinstance(name, str) and not name.startswith("tensorflow_datasets.core.features."):
                raise RequestError(f"{path}: {name} is no feature of TFDS")


def own_files(directory: Path, info: Any, split: str) -> list[Path]:
    """The record files of a split. Raises `RequestError` when one lies outside of `directory`."""
    paths = [Path(path) for path in info.splits[split].filepaths]
    for path in paths:
        if not Path(os.path.abspath(path)).is_relative_to(directory):
            raise RequestError(f"{directory}: {path} lies outside of the data set's folder")
    return paths


def build(
    directory: Path, texts: Mapping[str, Iterable[tuple[str, str]]], languages: tuple[str, str]
) -> None:
    """Makes the data set of `texts` in `directory`, or raises and leaves nothing there."""
    # What is there already was left by a run that was killed.
    shutil.rmtree(directory, ignore_errors=True)
    try:
        # TFDS prints to standard output, which belongs to results.
        with contextlib.redirect_stdout(None):
            builder = ParallelText(languages=languages, splits=texts, data_dir=directory)
            builder.download_and_prepare()
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    counts = ", ".join(f"{name} {info.num_examples}" for name, info in builder.info.splits.items())
    _log.info("prepared %s: %s sentence pairs", directory, counts)
