import gzip
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from transduce.config import RequestError
from transduce.text.lines import count_parallel, read_lines

READ_STANDARD_INPUT = (
    "from transduce.text.lines import read_lines\n"
    "for line in read_lines('-'): print(ascii(line), flush=True)"
)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_only_newline_ends_a_line(tmp_path: Path, compress) -> None:
    """T1: the number of sentences is the number of newlines."""
    text = "a\rb\u2028c\x85d\x0be\x0cf\r\n\n \u2029g\x1c\x1d\x1e\n"
    path = write(tmp_path / "text", compress(text.encode()))
    assert list(read_lines(path)) == ["a\rb\u2028c\x85d\x0be\x0cf\r", "", " \u2029g\x1c\x1d\x1e"]


@pytest.mark.parametrize(
    ("data", "lines"),
    [(b"", []), (b"\n", [""]), (b"a", ["a"]), (b"a\n", ["a"]), (b"a\n\nb", ["a", "", "b"])],
)
def test_the_last_newline_may_be_missing(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    assert list(read_lines(write(tmp_path / "text", data))) == lines


def test_gzip_is_known_by_content_not_by_name(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.gz", b"one\ntwo\n")
    packed = write(tmp_path / "packed.txt", gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert list(read_lines(plain)) == list(read_lines(str(packed))) == ["one", "two"]


def test_a_byte_order_mark_is_an_ordinary_character(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "text", b"\xef\xbb\xbfa\n"))) == ["\ufeffa"]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("bad", [b"\xff", b"caf\xc3", b"\xed\xa0\x80", b"a\0b"])
def test_bad_bytes_are_refused_with_file_and_line(tmp_path: Path, compress, bad: bytes) -> None:
    """T7, T11: invalid UTF-8 (a surrogate and a cut character too) and NUL."""
    path = write(tmp_path / "text", compress(b"good\n" + bad + b"\ngood\n"))
    lines = read_lines(path)
    assert next(lines) == "good"
    with pytest.raises(RequestError, match=f"{path}, line 2: (not UTF-8|has a NUL byte)"):
        next(lines)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"missing: cannot read: No such file"):
        list(read_lines(tmp_path / "missing"))
    with pytest.raises(RequestError, match=r"cannot read: Is a directory"):
        list(read_lines(tmp_path))


def test_broken_gzip_data_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"line\n" * 1000)
    flipped = bytearray(whole)
    flipped[-6] ^= 1  # in the checksum
    invalid = whole[:10] + b"\xff" * 20
    for data in (whole[:-3], whole[:25], bytes(flipped), invalid):
        with pytest.raises(RequestError, match=r"text, after line \d+: broken gzip data"):
            list(read_lines(write(tmp_path / "text", data)))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "text", gzip.compress(b"a line of text\n" * 200_000, 1))
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_lines(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 200_000
    assert peak < 2**19


def test_a_line_from_a_pipe_is_there_at_once() -> None:
    """T10: one line piped in, standard input left open."""
    command = [sys.executable, "-c", READ_STANDARD_INPUT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text, shown in (("one\n", b"'one'\n"), ("zw\u00f6lf\r\n", b"'zw\\xf6lf\\r'\n")):
            process.stdin.write(text.encode())
            process.stdin.flush()
            assert process.stdout.readline() == shown
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_standard_input_may_be_gzip() -> None:
    command = [sys.executable, "-c", READ_STANDARD_INPUT]
    data = gzip.compress(b"one\ntwo")
    answer = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True)
    assert answer.stdout == b"'one'\n'two'\n"


def test_bad_standard_input_is_named() -> None:
    command = [sys.executable, "-c", READ_STANDARD_INPUT]
    answer = subprocess.run(command, input=b"one\n\xff\n", capture_output=True, check=False)
    assert answer.stdout == b"'one'\n"
    assert b"RequestError: standard input, line 2: not UTF-8" in answer.stderr


def test_parallel_files_are_counted(tmp_path: Path) -> None:
    """T1"""
    source = write(tmp_path / "source", b"a\rb\n\nc\xe2\x80\xa8d\n")
    target = write(tmp_path / "target.gz", gzip.compress(b"1\n2\n3"))
    assert count_parallel(source, target) == 3


def test_files_of_different_length_are_named_with_their_counts(tmp_path: Path) -> None:
    """T7: both counts and both files."""
    source, target = write(tmp_path / "source", b"a\nb\n"), write(tmp_path / "target", b"")
    with pytest.raises(RequestError, match=f"{source} has 2 lines and {target} has 0"):
        count_parallel(source, target)


def test_empty_files_are_refused(tmp_path: Path) -> None:
    source, target = write(tmp_path / "source", b""), write(tmp_path / "target", b"")
    with pytest.raises(RequestError, match=f"{source} and {target} are empty"):
        count_parallel(source, target)


def test_both_files_are_read_to_their_ends(tmp_path: Path) -> None:
    """T11"""
    source, target = write(tmp_path / "source", b"a\n"), write(tmp_path / "target", b"a\nb\n\xff")
    with pytest.raises(RequestError, match=f"{target}, line 3: not UTF-8"):
        count_parallel(source, target)
