"""WMT 2014, on small archives of the same form, served on the loopback interface."""

import gzip
import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorflow_datasets.core.download.checksums import get_all_url_infos

from transduce.config import CorpusConfig, RequestError
from transduce.text import wmt14
from transduce.text.corpora import prepare
from transduce.text.wmt14 import PARTS, Wmt14Text

from .archives import FRENCH, GERMAN, Mirror, lines, members, sgml


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    # With 10 retries, what is not there is given up after minutes.
    monkeypatch.setattr("tensorflow_datasets.core.download.downloader.MAX_RETRIES", 0)
    (tmp_path / "mirror").mkdir()
    mirror = Mirror(tmp_path / "mirror", monkeypatch)
    yield mirror
    mirror.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def corpus(source: str, target: str, **changes) -> CorpusConfig:
    names = {"name": "wmt", "source_language": source, "target_language": target}
    return CorpusConfig(**{**names, "builder": "wmt14", **changes})


def texts(config: CorpusConfig, folder: Path, cache: Path) -> dict[str, list[tuple[str, str]]]:
    splits = prepare(config, folder=str(folder), cache=str(cache))
    return {name: list(split) for name, split in splits.items()}


def turned(texts: dict[str, list[tuple[str, str]]]) -> dict[str, list[tuple[str, str]]]:
    return {name: [(b, a) for a, b in pairs] for name, pairs in texts.items()}


def remains(cache: Path) -> list[str]:
    """What lies in the cache folder, but for locks and whole downloads with their notes."""
    return [
        path.name
        for folder in (cache, cache / "downloads")
        if folder.exists()
        for path in folder.iterdir()
        if path.name != "downloads" and path.suffix not in (".lock", ".tgz", ".tar")
    ]


ENGLISH_GERMAN = [
    "training-parallel-europarl-v7.tgz",
    "training-parallel-commoncrawl.tgz",
    "training-parallel-nc-v9.tgz",
    "dev.tgz",
]


def test_the_table_has_the_sums_that_tfds_records() -> None:
    recorded = get_all_url_infos()
    for archive in {part.archive for part in PARTS}:
        info = recorded[archive.url]
        assert (archive.size, archive.sha256) == (info.size, info.checksum)


def test_english_and_german_are_downloaded_and_prepared(
    mirror: Mirror, folder: Path, cache: Path, capfd
) -> None:
    """The paper's sources in their order, blank lines and all; each archive is asked for once."""
    assert texts(corpus("en", "de"), folder, cache) == GERMAN
    assert mirror.asked == ENGLISH_GERMAN
    assert {*os.listdir(cache / "downloads")} == {*ENGLISH_GERMAN, "downloads.lock"}
    (data_set,) = remains(cache)
    assert data_set.startswith("wmt-")
    assert capfd.readouterr().out == ""


def test_english_and_french_have_two_more_sources(
    mirror: Mirror, folder: Path, cache: Path
) -> None:
    assert texts(corpus("fr", "en"), folder, cache) == turned(FRENCH)
    more = ["training-parallel-un.tgz", "training-giga-fren.tar"]
    assert mirror.asked == [*ENGLISH_GERMAN[:3], *more, "dev.tgz"]


def test_the_test_set_is_the_one_of_its_direction(
    mirror: Mirror, folder: Path, cache: Path
) -> None:
    files = members()["dev.tgz"]
    for side, language in (("src", "de"), ("ref", "en")):
        files[f"./dev/newstest2014-deen-{side}.{language}.sgm"] = sgml(f"{side} {language}")
    mirror.change("dev.tgz", files)
    read = texts(corpus("de", "en"), folder, cache)
    assert read == {**turned(GERMAN), "test": [("src de", "ref en")]}


def test_what_is_prepared_needs_no_archive_any_more(
    mirror: Mirror, folder: Path, cache: Path
) -> None:
    texts(corpus("en", "de"), folder, cache)
    shutil.rmtree(cache / "downloads")
    mirror.asked.clear()
    assert texts(corpus("en", "de"), folder, cache) == GERMAN
    assert mirror.asked == []


def test_downloads_are_shared_by_corpora(mirror: Mirror, folder: Path, cache: Path) -> None:
    texts(corpus("en", "de"), folder, cache)
    mirror.asked.clear()
    assert texts(corpus("fr", "en"), folder, cache) == turned(FRENCH)
    assert mirror.asked == ["training-parallel-un.tgz", "training-giga-fren.tar"]


def test_processes_that_want_the_same_archive_wait_for_one_download(
    mirror: Mirror, folder: Path, cache: Path
) -> None:
    archive, found = wmt14.PARTS[0].archive, []

    def run() -> None:
        found.append(wmt14.fetch(archive, folder=folder, downloads=cache / "downloads"))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert mirror.asked == [archive.name]
    assert len(found) == 3
    assert {path.read_bytes() for path in found} == {(mirror.folder / archive.name).read_bytes()}


def test_archives_that_are_there_are_not_downloaded(
    mirror: Mirror, folder: Path, cache: Path
) -> None:
    for path in (folder / "by_hand", folder):
        path.mkdir(exist_ok=True)
        for name in ENGLISH_GERMAN:
            shutil.copy(mirror.folder / name, path)
    assert texts(corpus("en", "de"), folder, cache) == GERMAN
    assert texts(corpus("en", "de", name="other", path="by_hand"), folder, cache) == GERMAN
    assert mirror.asked == []
    (folder / "by_hand" / "dev.tgz").unlink()
    assert texts(corpus("en", "de", name="third", path="by_hand"), folder, cache) == GERMAN
    assert mirror.asked == ["dev.tgz"]


def test_a_wrong_archive_that_is_there_is_refused(
    mirror: Mirror, folder: Path, cache: Path
) -> None:
    (folder / "dev.tgz").write_bytes(b"abc")
    right = hashlib.sha256((mirror.folder / "dev.tgz").read_bytes()).hexdigest()
    # From FIPS 180-2, appendix B.1.
    wrong = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    message = f"^{folder}/dev.tgz: is not the dev.tgz of WMT 2014: 3 bytes .*{wrong}, not .*{right}"
    with pytest.raises(RequestError, match=message):
        texts(corpus("en", "de"), folder, cache)
    assert remains(cache) == []


def test_a_wrong_download_is_refused_and_removed(mirror: Mirror, folder: Path, cache: Path) -> None:
    path = mirror.folder / "training-parallel-commoncrawl.tgz"
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(b"abc")
    message = (
        f"^{mirror.url}/training-parallel-commoncrawl.tgz: is not .*: 3 bytes with SHA-256 ba7816bf"
        f".*{right}; the download was removed; download it yourself into {folder}, or try again$"
    )
    with pytest.raises(RequestError, match=message):
        texts(corpus("en", "de"), folder, cache)
    assert remains(cache) == []
    # The archive before it need not be downloaded once more.
    mirror.asked.clear()
    mirror.change(path.name, members()[path.name])
    assert texts(corpus("en", "de"), folder, cache) == GERMAN
    assert mirror.asked == ENGLISH_GERMAN[1:]


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        ("declared", r"cannot download or read: .*\b7 more expected"),
        ("silent", "is not the .* of WMT 2014"),
    ],
)
def test_half_a_download_is_refused_and_removed(
    mirror: Mirror, folder: Path, cache: Path, cut: str, message: str
) -> None:
    mirror.cut = cut
    url = f"^{mirror.url}/training-parallel-europarl-v7.tgz: "
    with pytest.raises(RequestError, match=url + message):
        texts(corpus("en", "de"), folder, cache)
    assert remains(cache) == []


def test_what_a_killed_download_left_is_removed(mirror: Mirror, folder: Path, cache: Path) -> None:
    left = cache / "downloads" / "name.tmp.0123"
    left.mkdir(parents=True)
    (left / "dev.tgz").write_bytes(b"half")
    assert texts(corpus("en", "de"), folder, cache) == GERMAN
    assert not left.exists()


def test_an_archive_that_is_not_served_is_named(mirror: Mirror, folder: Path, cache: Path) -> None:
    (mirror.folder / "dev.tgz").unlink()
    message = rf"^{mirror.url}/dev.tgz: cannot download .*404.*; download it yourself into {folder}"
    with pytest.raises(RequestError, match=message) as caught:
        texts(corpus("en", "de"), folder, cache)
    assert "\n" not in str(caught.value)
    assert remains(cache) == []


def test_without_a_network_the_address_is_named(mirror: Mirror, folder: Path, cache: Path) -> None:
    mirror.close()
    message = rf"^{mirror.url}/training-parallel-europarl-v7.tgz: cannot download .*refused"
    with pytest.raises(RequestError, match=message) as caught:
        texts(corpus("en", "de"), folder, cache)
    assert "\n" not in str(caught.value)
    assert remains(cache) == []


def test_a_cache_that_cannot_be_written_is_named(mirror: Mirror, folder: Path, cache: Path) -> None:
    cache.write_text("")
    with pytest.raises(RequestError, match=f"{cache}/downloads"):
        texts(corpus("en", "de"), folder, cache)


@pytest.mark.parametrize(
    ("archive", "name", "data", "message"),
    [
        (
            "training-parallel-europarl-v7.tgz",
            "training/europarl-v7.fr-en.fr",
            None,
            "has no file ",
        ),
        (
            "dev.tgz",
            "./dev/newstest2014-fren-src.fr.sgm",
            None,
            "has no file dev/newstest2014-fren-",
        ),
        (
            "training-parallel-nc-v9.tgz",
            "training/news-commentary-v9.fr-en.en",
            lines("a", "b", "c"),
            r"training/news-commentary-v9\.fr-en\.en has more lines than "
            r"training/news-commentary-v9\.fr-en\.fr, which has 1$",
        ),
        (
            "training-giga-fren.tar",
            "giga-fren.release2.fixed.fr.gz",
            gzip.compress(lines("a"), mtime=0),
            r"giga-fren\.release2\.fixed\.en\.gz has more lines .*\.fr\.gz, which has 1$",
        ),
        (
            "training-giga-fren.tar",
            "giga-fren.release2.fixed.en.gz",
            gzip.compress(lines("a", "b"), mtime=0)[:-9],
            r"giga-fren\.release2\.fixed\.en\.gz, after line \d: .*end-of-stream",
        ),
        (
            "training-parallel-un.tgz",
            "un/undoc.2000.fr-en.fr",
            b"\xff\n",
            r"un/undoc\.2000\.fr-en\.fr, line 1: not UTF-8",
        ),
        (
            "dev.tgz",
            "./dev/newstest2014-fren-ref.en.sgm",
            sgml("a", "b"),
            r"dev/newstest2014-fren-ref\.en\.sgm has segment 2 of document d, ",
        ),
    ],
)
def test_an_archive_with_wrong_contents_is_refused(
    mirror: Mirror, folder: Path, cache: Path, archive: str, name: str, data, message: str
) -> None:
    """T7, T11: with both files named, and nothing half-written."""
    files = members()[archive]
    if data is None:
        del files[name]
    else:
        files[name] = data
    mirror.change(archive, files)
    with pytest.raises(RequestError, match=rf"{archive.rsplit('.', 1)[0]}.*: {message}"):
        texts(corpus("fr", "en"), folder, cache)
    assert remains(cache) == []


def test_what_is_no_tar_archive_is_refused(mirror: Mirror, folder: Path, cache: Path) -> None:
    (mirror.folder / "dev.tgz").write_bytes(b"no tar")
    mirror.register()
    with pytest.raises(RequestError, match=r"dev\.tgz.*: dev/newstest2013\.en, after line 0: "):
        texts(corpus("en", "de"), folder, cache)
    assert remains(cache) == []


def test_pairs_with_a_nul_byte_are_left_out_and_counted(
    mirror: Mirror, folder: Path, cache: Path, caplog
) -> None:
    files = members()["training-parallel-commoncrawl.tgz"]
    files["commoncrawl.de-en.en"] = lines("A web page", "b\0", "c", "d")
    files["commoncrawl.de-en.de"] = lines("Eine Seite\u2028im Netz", "b", "\0c", "d")
    mirror.change("training-parallel-commoncrawl.tgz", files)
    with caplog.at_level(logging.WARNING):
        read = texts(corpus("en", "de"), folder, cache)
    assert read["train"] == [*GERMAN["train"][:3], ("d", "d"), GERMAN["train"][3]]
    assert "2 pairs of commoncrawl.de-en.en left out with a NUL byte" in caplog.text


def test_the_fingerprint_is_of_archives_and_files(mirror: Mirror, folder: Path) -> None:
    def fingerprint(split: str, *languages: str) -> str:
        source, target = languages
        text = Wmt14Text(split, languages=(source, target), folder=folder, downloads=folder)
        return text.fingerprint()

    before = fingerprint("train", "en", "de")
    assert fingerprint("train", "en", "de") == before
    others = [fingerprint(*names) for names in (("train", "de", "en"), ("dev", "en", "de"))]
    assert len({before, *others}) == 3
    mirror.change("training-parallel-nc-v9.tgz", {"a": b"b"})
    assert fingerprint("train", "en", "de") != before
    assert mirror.asked == []
