"""Corpora as prepared data sets.

A prepared data set lies in a cache folder under the name of its corpus and a fingerprint of what
is in it, so that a corpus that changes becomes another data set.
"""

import bisect
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import tensorflow_datasets as tfds
from google.protobuf.json_format import ParseError

from transduce.config import CorpusConfig, RequestError
from transduce.config_data import section_numbers
from transduce.text.lines import count_parallel, read_lines
from transduce.text.locks import locked
from transduce.text.prepared import (
    FILE_FORMAT,
    ParallelText,
    Split,
    build,
    own_files,
    require_known_features,
)
from transduce.text.sgml import read_parallel_sgml
from transduce.text.treebank import section_files, tree_files, trees_of
from transduce.text.trees_as_text import linearize
from transduce.text.wmt14 import Wmt14Text


class Text(Protocol):
    """The sentence pairs of a split before they are prepared."""

    def fingerprint(self) -> str:
        """Another one for other pairs."""
        ...

    def get_ready(self) -> None:
        """Makes sure that the pairs can be read, or raises `RequestError`."""
        ...

    def __iter__(self) -> Iterator[tuple[str, str]]: ...


def prepare(corpus: CorpusConfig, *, folder: str, cache: str | None = None) -> dict[str, Split]:
    """The splits of `corpus`, out of train, dev and test; prepared when they are not yet.

    Relative paths start at `folder`; when that is empty at $TRANSDUCE_DATA, else ../shared/data.
    Prepared data sets and downloads lie in `cache`, else $TRANSDUCE_CACHE, else transduce in
    $XDG_CACHE_HOME, else ~/.cache/transduce; a data set is there as a whole or not at all, also
    when preparation is killed or several processes want the same one. One that TFDS prepared is
    used where it lies.

    Raises `RequestError` when a file cannot be read as text, is empty or of another length than
    its other side (files are read through before anything is written), an archive cannot be had,
    a data set of TFDS does not fit, and when the data set cannot be written.
    """
    start = Path(folder or os.environ.get("TRANSDUCE_DATA") or "../shared/data").expanduser()
    if corpus.builder == "tfds":
        return _in_place(corpus, start)
    kept = cache_folder(cache)
    languages = (corpus.source_language, corpus.target_language)
    texts = _texts(corpus, start, downloads=kept / "downloads")
    fingerprints = {name: text.fingerprint() for name, text in texts.items()}
    version = str(ParallelText.VERSION)
    identity = _digest((version, languages, fingerprints))
    directory = kept / f"{corpus.name}-{identity}"
    prepared = directory / "parallel_text" / version
    if not prepared.is_dir():
        for text in texts.values():
            text.get_ready()
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            with locked(directory.with_suffix(".lock")):
                if not prepared.is_dir():
                    build(directory, texts, languages)
        except OSError as error:
            raise RequestError(
                f"{directory}: cannot prepare corpus {corpus.name}: {error}; "
                "$TRANSDUCE_CACHE names the folder for prepared corpora"
            ) from error
    return {
        name: _split(corpus, prepared, name, fingerprint)
        for name, fingerprint in fingerprints.items()
    }


def _split(corpus: CorpusConfig, directory: Path, name: str, fingerprint: str) -> Split:
    return Split(
        directory,
        name,
        languages=(corpus.source_language, corpus.target_language),
        fingerprint=_digest((fingerprint, corpus.tag)) if corpus.tag else fingerprint,
        tag=corpus.tag,
    )


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def cache_folder(cache: str | None = None) -> Path:
    """Where prepared data sets and downloads lie; see `prepare`."""
    if chosen := cache or os.environ.get("TRANSDUCE_CACHE"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "transduce"


def _texts(corpus: CorpusConfig, start: Path, *, downloads: Path) -> Mapping[str, Text]:
    if corpus.builder == "phrasebook":
        return {name: _Pairs(pairs) for name, pairs in _phrasebook().items()}
    if corpus.builder == "wmt14":
        languages = (corpus.source_language, corpus.target_language)
        folder = Path(os.path.abspath(start / corpus.path))
        return {
            split: Wmt14Text(split, languages=languages, folder=folder, downloads=downloads)
            for split in ("train", "dev", "test")
        }
    if corpus.builder == "treebank":
        return _treebank(corpus, start)
    return _files(corpus, start)


def _phrasebook() -> Mapping[str, Sequence[tuple[str, str]]]:
    from transduce.text.phrasebook import phrasebook

    return phrasebook()


@dataclass(frozen=True)
class _Pairs:
    """Pairs in memory."""

    pairs: Sequence[tuple[str, str]]

    def fingerprint(self) -> str:
        return _digest(self.pairs)

    def get_ready(self) -> None:
        pass

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)


@dataclass(frozen=True)
class _Files:
    """The pairs of two parallel files, of lines or of SGML."""

    source: Path
    target: Path

    def fingerprint(self) -> str:
        return _sum_of_files((self.source, self.target))

    def get_ready(self) -> None:
        if not self._is_sgml:
            count_parallel(self.source, self.target)
        else:
            read_parallel_sgml(self.source, self.target)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        if self._is_sgml:
            return iter(read_parallel_sgml(self.source, self.target))
        return zip(read_lines(self.source), read_lines(self.target), strict=True)

    @property
    def _is_sgml(self) -> bool:
        return _is_sgml(self.source)


def _is_sgml(path: Path) -> bool:
    return path.name.endswith((".sgm", ".sgm.gz"))


def _files(corpus: CorpusConfig, start: Path) -> dict[str, _Files]:
    named = {"train": corpus.train, "dev": corpus.dev, "test": corpus.test}
    texts: dict[str, _Files] = {}
    for split, paths in named.items():
        if not any(paths):
            continue
        source, target = (_existing(start / path, corpus, split, start=start) for path in paths)
        if _is_sgml(source) != _is_sgml(target):
            raise RequestError(f"{source} and {target}: both or neither must be SGML")
        texts[split] = _Files(source, target)
    return texts


@dataclass(frozen=True)
class _Trees:
    """The words of trees, and their symbols."""

    files: Sequence[Path]
    origin: str

    def fingerprint(self) -> str:
        return _digest(("trees", _sum_of_files(self.files)))

    def get_ready(self) -> None:
        for _ in self:
            pass

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for tree in trees_of(self.files, origin=self.origin):
            yield " ".join(tree.words()), " ".join(linearize(tree))


def _treebank(corpus: CorpusConfig, start: Path) -> dict[str, _Trees]:
    named = {"train": corpus.train, "dev": corpus.dev, "test": corpus.test}
    texts: dict[str, _Trees] = {}
    for split, (place, sections) in named.items():
        if not place:
            continue
        path = _existing(start / place, corpus, split, start=start)
        if sections:
            files = section_files(path, section_numbers(sections))
        else:
            files = tree_files(path) if path.is_dir() else [path]
        texts[split] = _Trees(files, str(path))
    return texts


def _existing(path: Path, corpus: CorpusConfig, split: str, *, start: Path) -> Path:
    path = Path(os.path.abspath(path))
    if not path.exists():
        raise RequestError(
            f"{path}: corpus {corpus.name} has no such file ({split}); relative paths "
            f"start at {str(start)!r}: set --data.folder or $TRANSDUCE_DATA"
        )
    return path


def _sum_of_files(paths: Iterable[Path]) -> str:
    """Of all their bytes, so that it is the same wherever and whenever they were copied."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise RequestError(f"{path}: cannot read: {error.strerror}") from error
    return digest.hexdigest()[:16]


def _in_place(corpus: CorpusConfig, start: Path) -> dict[str, Split]:
    """The splits of a data set that TFDS prepared; their fingerprints are of its record files."""
    directory = Path(os.path.abspath(start / corpus.path))
    if not (directory / "dataset_info.json").is_file():
        raise RequestError(
            f"{directory}: corpus {corpus.name} has no dataset_info.json there; path must name the "
            f"folder of one version of a data set (relative paths start at {str(start)!r})"
        )
    require_known_features(directory)
    try:
        info = tfds.builder_from_directory(directory, file_format=FILE_FORMAT).info
    except (OSError, ValueError, ParseError) as error:
        reason = " ".join(str(error).split())
        raise RequestError(f"{directory}: no data set in ArrayRecord files: {reason}") from error
    features = (
        dict(info.features.items()) if isinstance(info.features, tfds.features.FeaturesDict) else {}
    )
    for language in (corpus.source_language, corpus.target_language):
        if language not in features:
            have = ", ".join(features) or "none"
            raise RequestError(f"{directory}: has no language {language}; its features are {have}")
        if not isinstance(features[language], tfds.features.Text):
            raise RequestError(f"{directory}: its feature {language} is not text")
    if "train" not in info.splits:
        have = ", ".join(info.splits) or "none"
        raise RequestError(f"{directory}: has no split train; its splits are {have}")
    names = {"train": "train", "dev": "validation", "test": "test"}
    return {
        ours: _split(corpus, directory, theirs, _sum_of_files(own_files(directory, info, theirs)))
        for ours, theirs in names.items()
        if theirs in info.splits
    }


def training_sentences(
    splits: Sequence[Split], *, limit: int, sources_alone: bool = False
) -> Iterator[str]:
    """At most `limit` sentences, sources and targets in turn, evenly spaced over all pairs."""
    sides = 1 if sources_alone else 2
    pairs = sum(map(len, splits))
    wanted = min(pairs, limit // sides)
    chosen = [number * pairs // wanted for number in range(wanted)]
    start = 0
    for split in splits:
        stop = start + len(split)
        inside = chosen[bisect.bisect_left(chosen, start) : bisect.bisect_left(chosen, stop)]
        for pair in split.select([place - start for place in inside]):
            yield from pair[:sides]
        start = stop
