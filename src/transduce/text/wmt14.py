"""WMT 2014 from the sources that the paper trained on (section 5.1), by TFDS's download manager.

English with German: Europarl v7, Common Crawl and News Commentary v9; with French also the UN
corpus and the 10^9 corpus. The development set is newstest2013, the test set newstest2014 in full
(3,003 sentences). Archives are read as they are; nothing is unpacked onto the disk.
"""

import contextlib
import gzip
import hashlib
import logging
import os
import posixpath
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download.checksums import UrlInfo
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError
from tensorflow_datasets.core.units import Size

from transduce.config import RequestError
from transduce.text.locks import locked
from transduce.text.sgml import parallel_segments, parse_sgml

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Archive:
    """A tar archive to download, with its length in bytes and its SHA-256."""

    url: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        return posixpath.basename(self.url)


@dataclass(frozen=True)
class Part:
    """Two parallel files in an archive.

    In their names XX stands for de or fr, the language beside English, and LL for the file's own.
    """

    split: str
    archive: Archive
    source: str
    target: str
    languages: str = "de fr"
    """What XX can be."""


_EUROPARL = Archive(
    "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
    657_632_379,
    "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
)
_COMMON_CRAWL = Archive(
    "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
    918_311_367,
    "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
)
_NEWS_COMMENTARY = Archive(
    "http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
    80_418_416,
    "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
)
_UN = Archive(
    "http://www.statmt.org/wmt13/training-parallel-un.tgz",
    2_365_634_246,
    "29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47",
)
_GIGA = Archive(
    "http://www.statmt.org/wmt10/training-giga-fren.tar",
    2_595_102_720,
    "3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a",
)
_DEV = Archive(
    "http://data.statmt.org/wmt19/translation-task/dev.tgz",
    38_654_961,
    "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7",
)


def _same(split: str, archive: Archive, name: str, languages: str = "de fr") -> Part:
    return Part(split, archive, name, name, languages)


PARTS = (
    _same("train", _EUROPARL, "training/europarl-v7.XX-en.LL"),
    _same("train", _COMMON_CRAWL, "commoncrawl.XX-en.LL"),
    _same("train", _NEWS_COMMENTARY, "training/news-commentary-v9.XX-en.LL"),
    _same("train", _UN, "un/undoc.2000.XX-en.LL", "fr"),
    _same("train", _GIGA, "giga-fren.release2.fixed.LL.gz", "fr"),
    _same("dev", _DEV, "dev/newstest2013.LL"),
    Part("test", _DEV, "dev/newstest2014-XXen-src.LL.sgm", "dev/newstest2014-XXen-ref.LL.sgm"),
)
"""All of it, in the order in which it is read. The sums are those that TFDS records."""


class Wmt14Text:
    """The sentence pairs of a split."""

    def __init__(
        self, split: str, *, languages: tuple[str, str], folder: Path, downloads: Path
    ) -> None:
        """Archives lie in `folder`, under their own names, or else are downloaded to `downloads`.

        `languages` are source and target, one of them en and the other de or fr.
        """
        (foreign,) = {*languages} - {"en"}
        source, target = languages
        self._parts = [
            (
                part.archive,
                part.source.replace("XX", foreign).replace("LL", source),
                part.target.replace("XX", foreign).replace("LL", target),
            )
            for part in PARTS
            if part.split == split and foreign in part.languages.split()
        ]
        self._folder, self._downloads = folder, downloads
        self._paths: dict[Archive, Path] = {}

    def fingerprint(self) -> str:
        """Of the archives' sums and the files' names, so that it needs no archive."""
        names = [(archive.sha256, source, target) for archive, source, target in self._parts]
        return hashlib.sha256(repr(names).encode()).hexdigest()[:16]

    def get_ready(self) -> None:
        """Finds or downloads the archives; raises `RequestError` as `fetch` does."""
        for archive, _, _ in self._parts:
            self._paths[archive] = fetch(archive, folder=self._folder, downloads=self._downloads)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """After `get_ready`. Pairs with a NUL, which no vocabulary takes, are left out and counted.

        Raises `RequestError` when a file is not in its archive, is not UTF-8 or has another length
        than its other side.
        """
        for archive, source, target in self._parts:
            path, dropped = self._paths[archive], 0
            parallel = _parallel_sgml if source.endswith(".sgm") else _parallel_lines
            for pair in parallel(path, source, target):
                if "\0" in pair[0] or "\0" in pair[1]:
                    dropped += 1
                else:
                    yield pair
            if dropped:
                _log.warning("%s: %d pairs of %s left out with a NUL byte", path, dropped, source)


def fetch(archive: Archive, *, folder: Path, downloads: Path) -> Path:
    """Where `archive` lies under its own name: in `folder` or, once downloaded, in `downloads`.

    One process downloads at a time, the others wait. Raises `RequestError` when the file that is
    there or the download is not the right one, and when it cannot be downloaded; then nothing of
    the download stays.
    """
    advice = f"download it yourself into {folder}, or try again"
    path = folder / archive.name
    try:
        if not path.exists():
            path = downloads / archive.name
            downloads.mkdir(parents=True, exist_ok=True)
            with locked(downloads / "downloads.lock"), _cleared(downloads):
                if not path.exists():
                    _download(archive, path, advice)
                    return path
        _check(path, archive, what=str(path), remedy="replace it, or remove it to download it")
    except (OSError, tfds.download.DownloadError) as error:
        reason = " ".join(str(error).split())
        raise RequestError(f"{archive.url}: cannot download or read: {reason}; {advice}") from error
    return path


@contextlib.contextmanager
def _cleared(downloads: Path) -> Iterator[None]:
    """Takes away what unfinished downloads left, killed ones before and failed ones after."""

    def clear() -> None:
        for path in downloads.glob("*.tmp.*"):
            shutil.rmtree(path)

    clear()
    try:
        yield
    finally:
        clear()


def _download(archive: Archive, path: Path, advice: str) -> None:
    downloads = path.parent
    info = UrlInfo(size=Size(archive.size), checksum=archive.sha256, filename=archive.name)
    manager = tfds.download.DownloadManager(
        download_dir=downloads, extract_dir=downloads, url_infos={archive.url: info}
    )
    _log.info("downloading %s (%.0f MB) to %s", archive.url, archive.size / 1e6, downloads)
    try:
        # TFDS makes a name of its own.
        made = Path(manager.download(archive.url))
    except NonMatchingChecksumError:
        (wrong,) = downloads.glob("*.tmp.*/*")
        _check(wrong, archive, what=archive.url, remedy=f"the download was removed; {advice}")
        raise
    made.with_name(f"{made.name}.INFO").unlink()
    made.replace(path)


def _check(path: Path, archive: Archive, *, what: str, remedy: str) -> None:
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        size = os.fstat(file.fileno()).st_size
    if (size, found) != (archive.size, archive.sha256):
        raise RequestError(
            f"{what}: is not the {archive.name} of WMT 2014: {size} bytes with SHA-256 {found}, "
            f"not {archive.size} with {archive.sha256}; {remedy}"
        )


def _parallel_sgml(archive: Path, source: str, target: str) -> list[tuple[str, str]]:
    names = f"{archive}: {source}", f"{archive}: {target}"
    sides = [
        parse_sgml("\n".join(_lines(archive, member)), name=name)
        for member, name in zip((source, target), names, strict=True)
    ]
    return parallel_segments(sides[0], sides[1], names=names)


def _parallel_lines(archive: Path, source: str, target: str) -> Iterator[tuple[str, str]]:
    pairs = zip_longest(_lines(archive, source), _lines(archive, target))
    for number, (left, right) in enumerate(pairs):
        if left is None or right is None:
            longer, shorter = (source, target) if right is None else (target, source)
            raise RequestError(
                f"{archive}: {longer} has more lines than {shorter}, which has {number}"
            )
        yield left, right


def _lines(archive: Path, name: str) -> Iterator[str]:
    """The lines of the file `name` in `archive`, as in `read_lines`, but with NULs."""
    number = 0
    try:
        with _open(archive, name) as file:
            for line in file:
                number += 1
                yield line.removesuffix(b"\n").decode()
    except UnicodeDecodeError as error:
        raise RequestError(f"{archive}: {name}, line {number}: not UTF-8: {error}") from error
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        reason = " ".join(str(error).split())
        raise RequestError(f"{archive}: {name}, after line {number}: {reason}") from error


@contextlib.contextmanager
def _open(archive: Path, name: str) -> Iterator[Iterable[bytes]]:
    """The lines of the file `name` of a tar archive, "\n" included; one of gzip is unpacked."""
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member) if posixpath.normpath(member.name) == name else None
            if file:
                with file, gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file as lines:
                    yield lines
                return
    raise RequestError(f"{archive}: has no file {name}")
