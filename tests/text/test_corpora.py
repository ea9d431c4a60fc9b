import gzip
import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import grain
import pytest
import tensorflow_datasets as tfds

from transduce.config import CorpusConfig, RequestError
from transduce.text import corpora
from transduce.text.corpora import prepare, training_sentences
from transduce.text.prepared import Split

ENGLISH = ["A man runs.", "", "tabs\tand\u00a0\u2028spaces \r", "\U0001f600 e\u0301"]
GERMAN = ["Ein Mann läuft.", "leer", "\x0b\x0c\x85", "  zwei  "]


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def corpus(**changes) -> CorpusConfig:
    files = {"train": ("train.en.gz", "train.de"), "dev": ("dev.en", "dev.de.gz")}
    names = {"name": "toy", "source_language": "en", "target_language": "de"}
    return CorpusConfig(**{**names, **files, **changes})


@pytest.fixture
def folder(tmp_path: Path) -> str:
    write(tmp_path / "data" / "train.en.gz", ENGLISH)
    write(tmp_path / "data" / "train.de", GERMAN)
    write(tmp_path / "data" / "dev.en", ENGLISH[:1])
    write(tmp_path / "data" / "dev.de.gz", GERMAN[:1])
    return str(tmp_path / "data")


@pytest.fixture
def cache(tmp_path: Path) -> str:
    return str(tmp_path / "cache")


def prepared(cache: str) -> list[str]:
    return sorted(path.name for path in Path(cache).glob("*/parallel_text/1.0.0"))


def remains(cache: str) -> list[str]:
    """What lies in the cache folder, but for locks."""
    if not Path(cache).exists():
        return []
    return [name for name in os.listdir(cache) if not name.endswith(".lock")]


def test_pairs_come_back_as_they_were(folder: str, cache: str, capfd) -> None:
    """T1: sides stay aligned, whatever stands inside the lines, blank lines included."""
    splits = prepare(corpus(), folder=folder, cache=cache)
    assert list(splits) == ["train", "dev"]
    train = splits["train"]
    pairs = list(zip(ENGLISH, GERMAN, strict=True))
    assert len(train) == 4
    assert list(train) == pairs
    assert [train[index] for index in range(4)] == pairs
    assert train[-1] == pairs[3]
    assert train.__getitems__([2, 0]) == [pairs[2], pairs[0]]
    with pytest.raises(IndexError):
        train[4]
    assert list(splits["dev"]) == pairs[:1]
    assert capfd.readouterr() == ("", "")


def test_a_split_is_a_source_for_grain(folder: str, cache: str) -> None:
    train = prepare(corpus(), folder=folder, cache=cache)["train"]
    source = grain.MapDataset.source(train).map(lambda pair: pair[1])
    assert [source[index] for index in range(5)] == [*GERMAN, GERMAN[0]]


def test_a_split_can_be_pickled(folder: str, cache: str) -> None:
    train = prepare(corpus(), folder=folder, cache=cache)["train"]
    before, copy = train[0], pickle.loads(pickle.dumps(train))
    assert copy[0] == before
    assert list(copy) == list(train)
    assert copy.fingerprint == train.fingerprint


def test_the_test_split_may_be_named(folder: str, cache: str) -> None:
    with_test = corpus(test=("dev.en", "dev.de.gz"))
    splits = prepare(with_test, folder=folder, cache=cache)
    assert list(splits) == ["train", "dev", "test"]
    assert splits["test"].fingerprint == splits["dev"].fingerprint != splits["train"].fingerprint


def test_tfds_can_read_what_is_prepared(folder: str, cache: str) -> None:
    prepare(corpus(), folder=folder, cache=cache)
    (directory,) = Path(cache).glob("toy-*/parallel_text/1.0.0")
    builder = tfds.builder_from_directory(directory)
    assert isinstance(builder.info.features, tfds.features.Translation)
    assert list(builder.info.features) == ["de", "en"]
    assert builder.info.splits["train"].num_examples == 4
    info = json.loads((directory / "dataset_info.json").read_text())
    assert info["fileFormat"] == "array_record"
    assert info["disableShuffling"] is True


def test_a_corpus_is_prepared_once(folder: str, cache: str, monkeypatch) -> None:
    first = prepare(corpus(), folder=folder, cache=cache)
    monkeypatch.setattr(corpora, "build", None)
    again = prepare(corpus(), folder=folder, cache=cache)
    assert list(again["train"]) == list(first["train"])
    assert len(prepared(cache)) == 1


def test_a_changed_corpus_is_another_data_set(folder: str, cache: str) -> None:
    old = prepare(corpus(), folder=folder, cache=cache)
    write(Path(folder, "train.de"), ["neu", *GERMAN[1:]])
    new = prepare(corpus(), folder=folder, cache=cache)
    assert (old["train"][0][1], new["train"][0][1]) == (GERMAN[0], "neu")
    assert old["train"].fingerprint != new["train"].fingerprint
    assert old["dev"].fingerprint == new["dev"].fingerprint
    assert len(prepared(cache)) == 2


def test_other_languages_or_another_name_are_another_data_set(folder: str, cache: str) -> None:
    for changes in ({}, {"name": "other"}, {"target_language": "nl"}):
        split = prepare(corpus(**changes), folder=folder, cache=cache)["dev"]
        assert split[0] == (ENGLISH[0], GERMAN[0])
    assert len(prepared(cache)) == 3


def test_a_missing_file_is_named_with_how_to_find_it(folder: str, cache: str) -> None:
    missing = corpus(dev=("dev.en", "sub/dev.de"))
    with pytest.raises(RequestError, match=r"--data\.folder or \$TRANSDUCE_DATA") as caught:
        prepare(missing, folder=folder, cache=cache)
    assert str(caught.value).startswith(f"{folder}/sub/dev.de: ")
    assert remains(cache) == []


def test_the_folder_comes_from_the_environment(folder: str, cache: str, monkeypatch) -> None:
    monkeypatch.setenv("TRANSDUCE_DATA", folder)
    monkeypatch.setenv("TRANSDUCE_CACHE", cache)
    assert len(prepare(corpus(), folder="")["train"]) == 4
    assert len(prepared(cache)) == 1


def test_the_folder_is_else_beside_the_working_directory(
    folder: str, tmp_path, monkeypatch
) -> None:
    (tmp_path / "shared").mkdir()
    Path(folder).rename(tmp_path / "shared" / "data")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("TRANSDUCE_DATA", "TRANSDUCE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert len(prepare(corpus(), folder="")["train"]) == 4
    assert len(prepared(str(tmp_path / "xdg" / "transduce"))) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert len(prepare(corpus(), folder="")["train"]) == 4
    assert len(prepared(str(tmp_path / "home" / ".cache" / "transduce"))) == 1


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("train.de", b"a\nb\n", r"train\.en\.gz has 4 lines and .*train\.de has 2"),
        ("dev.en", b"", r"dev\.en has 0 lines and .*dev\.de\.gz has 1"),
        ("train.de", b"a\nb\n\xff\nd\n", r"train\.de, line 3: not UTF-8"),
        ("train.de", b"a\nb\0\nc\nd\n", r"train\.de, line 2: has a NUL byte"),
        (
            "train.en.gz",
            gzip.compress(b"a\n", mtime=0)[:-4],
            r"train\.en\.gz, after line \d: broken gzip",
        ),
    ],
)
def test_a_bad_corpus_is_refused_before_anything_is_written(
    folder: str, cache: str, name: str, data: bytes, message: str
) -> None:
    """T7, T11: nothing half-written."""
    Path(folder, name).write_bytes(data)
    with pytest.raises(RequestError, match=message):
        prepare(corpus(), folder=folder, cache=cache)
    assert not Path(cache).exists()


def test_an_empty_corpus_is_refused(folder: str, cache: str) -> None:
    for name in ("train.en.gz", "train.de"):
        write(Path(folder, name), [])
    with pytest.raises(RequestError, match=r"train\.en\.gz and .*train\.de are empty"):
        prepare(corpus(), folder=folder, cache=cache)
    assert not Path(cache).exists()


def test_a_directory_is_no_corpus(folder: str, cache: str) -> None:
    with pytest.raises(RequestError, match=r"data: cannot read: Is a directory"):
        prepare(corpus(dev=("dev.en", ".")), folder=folder, cache=cache)


def test_a_cache_that_cannot_be_written_is_named(folder: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match=r"file/toy-.*cannot prepare.*\$TRANSDUCE_CACHE"):
        prepare(corpus(), folder=folder, cache=str(tmp_path / "file"))


def test_a_full_disk_leaves_nothing(folder: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted: {mounted.stderr.strip()}")
    try:
        for name in ("train.en.gz", "train.de"):
            write(Path(folder, name), [os.urandom(300).hex() for _ in range(5000)])
        with pytest.raises(RequestError, match=f"{disk}/toy-.*No space left on device"):
            prepare(corpus(), folder=folder, cache=str(disk))
        assert remains(str(disk)) == []
        # The disk is whole again.
        small = corpus(train=("dev.en", "dev.de.gz"))
        assert len(prepare(small, folder=folder, cache=str(disk))["train"]) == 1
    finally:
        subprocess.run(["umount", str(disk)], check=True)


PREPARE = """
import os, signal, sys
from transduce.config import CorpusConfig
from transduce.text import corpora

folder, cache = sys.argv[1:]
read_lines = corpora.read_lines
def die(path):
    for line in read_lines(path):
        yield line
    os.kill(os.getpid(), signal.SIGKILL)
corpora.read_lines = die
corpora.prepare(
    CorpusConfig(name="toy", source_language="en", target_language="de",
                 train=("train.en.gz", "train.de"), dev=("dev.en", "dev.de.gz")),
    folder=folder, cache=cache)
"""


def test_a_killed_preparation_is_begun_anew(folder: str, cache: str) -> None:
    killed = subprocess.run([sys.executable, "-c", PREPARE, folder, cache], check=False)
    assert killed.returncode == -9
    assert list(Path(cache).glob("toy-*/parallel_text/*incomplete*/*"))
    assert prepared(cache) == []
    splits = prepare(corpus(), folder=folder, cache=cache)
    assert list(splits["train"]) == list(zip(ENGLISH, GERMAN, strict=True))
    assert len(prepared(cache)) == 1
    assert list(Path(cache).glob("toy-*/parallel_text/*incomplete*")) == []


def test_preparations_of_one_corpus_wait_for_each_other(
    folder: str, cache: str, monkeypatch
) -> None:
    build, begun, others = corpora.build, [], []
    may_end = threading.Event()

    def slow_build(*arguments) -> None:
        begun.append(arguments)
        may_end.wait(60)
        build(*arguments)

    def run() -> None:
        others.append(list(prepare(corpus(), folder=folder, cache=cache)["train"]))

    monkeypatch.setattr(corpora, "build", slow_build)
    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    threads[0].join(0.3)
    assert len(begun) == 1
    assert others == []
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert len(begun) == 1
    assert others == [list(zip(ENGLISH, GERMAN, strict=True))] * 3


def test_a_split_larger_than_tfds_holds_in_memory_is_written(
    folder: str, cache: str, monkeypatch
) -> None:
    monkeypatch.setattr("tensorflow_datasets.core.shuffle.MAX_MEM_BUFFER_SIZE", 1)
    assert len(prepare(corpus(), folder=folder, cache=cache)["train"]) == 4


OFFLINE = """
import pathlib, socket, sys, tempfile
def refuse(*arguments): raise AssertionError("the network was used")
socket.socket.connect = socket.getaddrinfo = refuse
from transduce.config import CorpusConfig
from transduce.text import corpora

corpus = CorpusConfig(name="toy", source_language="en", target_language="de",
                      train=("train.en.gz", "train.de"), dev=("dev.en", "dev.de.gz"))
corpora.prepare(corpus, folder=sys.argv[1], cache=sys.argv[2])["train"][0]
print([name for name in ("jax", "tensorflow") if name in sys.modules])
print(list(pathlib.Path(tempfile.gettempdir()).iterdir()))
"""


def test_preparation_needs_neither_tensorflow_nor_the_network(
    folder: str, cache: str, tmp_path: Path
) -> None:
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, "-W", "error", "-c", OFFLINE, folder, cache]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (answer.stdout, answer.stderr) == ("[]\n[]\n", "")


def test_the_phrasebook_is_a_corpus(cache: str, monkeypatch) -> None:
    pairs = {
        "train": [("the dog", "der Hund"), ("the cat", "die Katze")],
        "dev": [("a dog", "ein Hund")],
        "test": [("a cat", "eine Katze")],
    }
    monkeypatch.setattr(corpora, "_phrasebook", lambda: pairs)
    ours = corpus(builder="phrasebook", train=("", ""), dev=("", ""))
    splits = prepare(ours, folder="", cache=cache)
    assert {name: list(split) for name, split in splits.items()} == pairs
    monkeypatch.setattr(corpora, "_phrasebook", lambda: {**pairs, "test": [("a", "b")]})
    assert list(prepare(ours, folder="", cache=cache)["test"]) == [("a", "b")]


def splits_of(counts: list[int], folder: str, cache: str) -> list[Split]:
    made = []
    for number, count in enumerate(counts):
        write(Path(folder, "train.en.gz"), [f"s{number}.{line}" for line in range(count)])
        write(Path(folder, "train.de"), [f"t{number}.{line}" for line in range(count)])
        made.append(prepare(corpus(), folder=folder, cache=cache)["train"])
    return made


def test_training_sentences_are_evenly_spaced(folder: str, cache: str) -> None:
    splits = splits_of([4, 2], folder, cache)
    everything = [f"{side}0.{line}" for line in range(4) for side in "st"]
    everything += [f"{side}1.{line}" for line in range(2) for side in "st"]
    for limit in (12, 100):
        assert list(training_sentences(splits, limit=limit)) == everything
    # Pairs 0, 2 and 4 of 6.
    some = ["s0.0", "t0.0", "s0.2", "t0.2", "s1.0", "t1.0"]
    for limit in (6, 7):
        assert list(training_sentences(splits, limit=limit)) == some


def sgml(*texts: str) -> list[str]:
    segments = [f'<seg id="{number}">{text}</seg>' for number, text in enumerate(texts, 1)]
    return ['<doc docid="a">', *segments, "</doc>"]


def test_sgml_files_are_a_corpus(folder: str, cache: str) -> None:
    write(Path(folder, "test.en.sgm"), sgml("R&amp;D", "two"))
    write(Path(folder, "test.de.sgm.gz"), sgml("F&amp;E", "zwei"))
    named = corpus(test=("test.en.sgm", "test.de.sgm.gz"))
    splits = prepare(named, folder=folder, cache=cache)
    assert list(splits["test"]) == [("R&D", "F&E"), ("two", "zwei")]
    write(Path(folder, "test.de.sgm.gz"), sgml("F&amp;E"))
    with pytest.raises(RequestError, match=r"test\.en\.sgm has segment 2 of document a, .*has not"):
        prepare(named, folder=folder, cache=cache)
    with pytest.raises(RequestError, match="both or neither must be SGML"):
        prepare(corpus(test=("test.en.sgm", "dev.de.gz")), folder=folder, cache=cache)


def test_a_tag_stands_before_every_source_line_that_is_not_blank(folder: str, cache: str) -> None:
    plain = prepare(corpus(test=("dev.en", "dev.de.gz")), folder=folder, cache=cache)
    tagged = prepare(corpus(test=("dev.en", "dev.de.gz"), tag="<2de>"), folder=folder, cache=cache)
    train = tagged["train"]
    sources = ["<2de> A man runs.", "", f"<2de> {ENGLISH[2]}", f"<2de> {ENGLISH[3]}"]
    assert list(train) == list(zip(sources, GERMAN, strict=True))
    assert train[0] == pickle.loads(pickle.dumps(train))[0] == (sources[0], GERMAN[0])
    for name in ("dev", "test"):
        assert list(tagged[name]) == [(sources[0], GERMAN[0])]
    assert len(prepared(cache)) == 1
    assert all(tagged[name].fingerprint != plain[name].fingerprint for name in plain)
