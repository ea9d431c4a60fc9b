"""Corpora as prepared data sets: TFDS in ArrayRecord files, without TensorFlow.

A prepared data set lies in a cache folder under the name of its corpus and a fingerprint of what
is in it, so that a corpus that changes becomes another data set.
"""

import bisect
import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from transduce.config import CorpusConfig, RequestError
from transduce.text.lines import count_parallel, read_lines

_log = logging.getLogger(__name__)


class _Info(tfds.core.DatasetInfo):
    """Nothing about a user's corpus can be in TFDS's cloud bucket: it is not asked."""

    def initialize_from_bucket(self) -> None:
        pass


class ParallelText(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Sentence pairs in TFDS's translation format: each a dictionary of language and text."""

    VERSION = tfds.core.Version("1.0.0")
    # Nothing is downloaded, so there are no checksums. TFDS would look for a file of them by means
    # of importlib_resources, which it does not install.
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
        super().__init__(data_dir=data_dir, file_format="array_record")

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
        sizes: list[int] = []

        def records() -> Iterator[tuple[int, bytes]]:
            for key, example in examples:
                record = serializer.serialize_example(features.encode_example(example))
                sizes.append(len(record))
                yield key, record

        try:
            path = template.sharded_filepath(shard_index=0, num_shards=1)
            self._example_writer().write(path, records())
        except RuntimeError as error:
            # What ArrayRecord makes of a full disk and the like.
            raise OSError(str(error)) from error
        return tfds.core.SplitInfo(
            name=name,
            shard_lengths=[len(sizes)],
            num_bytes=sum(sizes),
            filename_template=template,
        )


class Split:
    """The sentence pairs of a prepared split: `split[i]` is a source and a target text.

    Records are read when they are asked for. Can be pickled; the copy opens the files anew.
    """

    def __init__(
        self, directory: Path, name: str, *, languages: tuple[str, str], fingerprint: str
    ) -> None:
        """Split `name` of the TFDS data set in `directory`."""
        builder: Any = tfds.builder_from_directory(directory)
        self._records = builder.as_data_source(name)
        self._languages = languages
        self.fingerprint = fingerprint
        """Of the text that the split was made of."""

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> tuple[str, str]:
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
        source, target = self._languages
        return record[source].decode(), record[target].decode()


def training_sentences(splits: Sequence[Split], *, limit: int) -> Iterator[str]:
    """At most `limit` sentences, sources and targets in turn, evenly spaced over all pairs."""
    pairs = sum(map(len, splits))
    wanted = min(pairs, limit // 2)
    chosen = [number * pairs // wanted for number in range(wanted)]
    start = 0
    for split in splits:
        stop = start + len(split)
        inside = chosen[bisect.bisect_left(chosen, start) : bisect.bisect_left(chosen, stop)]
        for pair in split.select([place - start for place in inside]):
            yield from pair
        start = stop


@dataclass(frozen=True)
class _Files:
    """The pairs of two parallel files."""

    source: Path
    target: Path

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(read_lines(self.source), read_lines(self.target), strict=True)


def prepare(corpus: CorpusConfig, *, folder: str, cache: str | None = None) -> dict[str, Split]:
    """The splits of `corpus`: train, dev and, if it has one, test; prepared when they are not yet.

    Relative paths start at `folder`; when that is empty at $TRANSDUCE_DATA, else ../shared/data.
    Prepared data sets lie in `cache`, else $TRANSDUCE_CACHE, else transduce in $XDG_CACHE_HOME,
    else ~/.cache/transduce; a data set is there as a whole or not at all, also when preparation
    is killed or several processes want the same one.

    Raises `RequestError` when a file cannot be read as text, is empty or of another length than
    its other side (all files are read through before anything is written), and when the data set
    cannot be written.
    """
    languages = (corpus.source_language, corpus.target_language)
    texts = _phrasebook() if corpus.builder == "phrasebook" else _files(corpus, folder)
    fingerprints = {name: _fingerprint(pairs) for name, pairs in texts.items()}
    version = str(ParallelText.VERSION)
    identity = hashlib.sha256(repr((version, languages, fingerprints)).encode()).hexdigest()[:16]
    directory = _cache_folder(cache) / f"{corpus.name}-{identity}"
    prepared = directory / "parallel_text" / version
    if not prepared.is_dir():
        for pairs in texts.values():
            if isinstance(pairs, _Files):
                count_parallel(pairs.source, pairs.target)
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            with _locked(directory.with_suffix(".lock")):
                if not prepared.is_dir():
                    _build(directory, texts, languages)
        except OSError as error:
            raise RequestError(
                f"{directory}: cannot prepare corpus {corpus.name}: {error}; "
                "$TRANSDUCE_CACHE names the folder for prepared corpora"
            ) from error
    return {
        name: Split(prepared, name, languages=languages, fingerprint=fingerprint)
        for name, fingerprint in fingerprints.items()
    }


def _phrasebook() -> dict[str, Iterable[tuple[str, str]]]:
    from transduce.text.phrasebook import phrasebook

    return {**phrasebook()}


def _files(corpus: CorpusConfig, folder: str) -> dict[str, Iterable[tuple[str, str]]]:
    start = Path(folder or os.environ.get("TRANSDUCE_DATA") or "../shared/data")
    named = {"train": corpus.train, "dev": corpus.dev, "test": corpus.test}
    texts: dict[str, Iterable[tuple[str, str]]] = {}
    for split, paths in named.items():
        if not any(paths):
            continue
        source, target = (Path(os.path.abspath(start.expanduser() / path)) for path in paths)
        for path in (source, target):
            if not path.exists():
                raise RequestError(
                    f"{path}: corpus {corpus.name} has no such file ({split}); relative paths "
                    f"start at {str(start)!r}: set --data.folder or $TRANSDUCE_DATA"
                )
        texts[split] = _Files(source, target)
    return texts


def _fingerprint(pairs: Iterable[tuple[str, str]]) -> str:
    """Of a split's text: of its files as they are, or of the pairs themselves."""
    if not isinstance(pairs, _Files):
        return hashlib.sha256(repr(pairs).encode()).hexdigest()[:16]
    digest = hashlib.sha256()
    for path in (pairs.source, pairs.target):
        try:
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise RequestError(f"{path}: cannot read: {error.strerror}") from error
    return digest.hexdigest()[:16]


def _cache_folder(cache: str | None) -> Path:
    if chosen := cache or os.environ.get("TRANSDUCE_CACHE"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "transduce"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock that the file at `path` stands for; it ends with the process at the latest."""
    with open(path, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(
    directory: Path, texts: Mapping[str, Iterable[tuple[str, str]]], languages: tuple[str, str]
) -> None:
    """Makes the data set in `directory`, or raises and leaves nothing there."""
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
