"""translate as the command line runs it: files and streams in and out, line by line."""

import gzip
import random
from pathlib import Path

import pytest

from transduce.decoding.translator import Translator
from transduce.text.vocabulary import Vocabulary

from .files import lines_of, read, records, standard_input, warnings, write

LONG = " ".join(["man"] * 400)
CUT = "source of 400 pieces cut to 28 (search.max_source_length)"


def best(translator: Translator, lines: list[str]) -> list[str]:
    return [found.hypotheses[0].text for found in translator.translate(lines)]


def test_files_gzip_and_standard_streams_give_the_same(
    command, workdir: Path, tmp_path: Path, sentences: list[str], translator: Translator
) -> None:
    lines = sentences[:10]
    expected = best(translator, lines)
    assert len(set(expected)) > 5
    plain = write(tmp_path / "plain", lines)
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, packed):
        output = tmp_path / "output"
        status, out, err = command("translate", workdir, "--input", path, "--output", output)
        assert (status, out, warnings(err, count="10 lines")) == (0, "", [])
        assert read(output) == expected
        output.unlink()
    for data in (plain.read_bytes(), packed.read_bytes()):
        for folder in (tmp_path, None):
            with standard_input(data, folder=folder):
                status, out, err = command("translate", workdir)
            assert (status, lines_of(out)) == (0, expected)
            assert warnings(err, count="10 lines") == []


@pytest.fixture(scope="module")
def many(sentences: list[str]) -> list[str]:
    """Sentences, one of them too long, and blank lines."""
    return [*sentences[:20], "", LONG, "\t", *sentences[20:]]


@pytest.fixture
def written(command, workdir: Path, tmp_path: Path):
    """What is known of each of some lines, as `translate` writes it."""

    def call(lines: list[str], *options: object) -> list[dict]:
        path = write(tmp_path / "lines", lines)
        asked = ["--input", path, "--format", "jsonl", "--n-best", 3, *options]
        status, out, _ = command("translate", workdir, *asked)
        found = records(out)
        assert status == 0
        assert [record.pop("line") for record in found] == list(range(1, len(lines) + 1))
        return found

    return call


def test_output_does_not_depend_on_batches_order_or_devices(written, many: list[str]) -> None:
    """T5, D1, D11: to the last digit; 43 lines leave one over of sevens, and one of twos."""
    assert (len(many) % 7, len(many) % 2) == (1, 1)
    expected = written(many)
    for size in (1, 2, 7, 64):
        assert written(many, "--batch-size", size) == expected
    order = list(range(len(many)))
    random.Random(3).shuffle(order)
    shuffled = [many[place] for place in order]
    for options in ([], ["--batch-size", 7], ["--search.devices", 4]):
        assert written(shuffled, *options) == [expected[place] for place in order]


def test_blank_lines_stay_where_they_were(
    command, workdir: Path, tmp_path: Path, alone: dict
) -> None:
    """T2, T3, T5: a thousand lines, a quarter of them blank, in parts of many sizes."""
    generator = random.Random(0)
    blanks = ["", " ", "\u00a0", "\t\t", " \u3000\u2028 "]
    lines = [generator.choice(blanks if number % 4 == 1 else list(alone)) for number in range(1000)]
    expected = [
        "" if number % 4 == 1 else alone[line].hypotheses[0].text
        for number, line in enumerate(lines)
    ]
    source = write(tmp_path / "source", lines)
    for size in (37, 4096):
        options = ["--input", source, "--output", tmp_path / "out", "--batch-size", size]
        status, _, err = command("translate", workdir, *options)
        assert (status, warnings(err, count="1,000 lines")) == (0, [])
        assert read(tmp_path / "out") == expected


def test_only_newline_ends_a_line(
    command, workdir: Path, tmp_path: Path, translator: Translator
) -> None:
    """T1, T3: whatever else other programs take for the end of a line is inside one."""
    lines = ["a\rb", "the man\r", "a\u2028b", "a\x85b", "a\x0bb", "\x0c", "", "a\x1c\x1db\u2029"]
    source = write(tmp_path / "source", lines)
    assert command("translate", workdir, "--input", source, "--output", tmp_path / "out")[0] == 0
    expected = best(translator, lines)
    assert (expected[5], expected[6]) == ("", "")
    assert read(tmp_path / "out") == expected


def test_an_overlong_line_is_translated_with_a_warning(
    command, workdir: Path, tmp_path: Path, sentences: list[str]
) -> None:
    """T4, T6: the fifth of ten; the others are as ever."""
    lines = sentences[:9]
    others = command("translate", workdir, "--input", write(tmp_path / "others", lines))[1]
    source = write(tmp_path / "source", [*lines[:4], LONG, *lines[4:]])
    status, out, err = command("translate", workdir, "--input", source)
    assert status == 0
    assert warnings(err, count="10 lines") == [f"transduce: warning: line 5: {CUT}"]
    made = lines_of(out)
    assert made.pop(4)
    assert made == lines_of(others)
    out = command("translate", workdir, "--input", source, "--format", "jsonl")[1]
    assert [record["notes"] for record in records(out)] == [[], [], [], [], [CUT], *[[]] * 5]


def test_an_overlong_line_is_split_when_asked(
    command,
    workdir: Path,
    tmp_path: Path,
    short: list[str],
    vocabulary: Vocabulary,
    translator: Translator,
) -> None:
    """T4: all of its text is translated, sentence by sentence, and the parts are joined."""
    parts = [f"{line}." for line in short[:8]]
    line = " ".join(parts)
    pieces = len(vocabulary.encode(line)) - 1
    note = f"source of {pieces} pieces split into 8 parts of at most 28 (search.max_source_length)"
    source = write(tmp_path / "source", [short[0], line])
    asked = ["--input", source, "--search.long-lines", "split", "--alignments"]
    status, out, err = command("translate", workdir, *asked, "--format", "jsonl")
    assert status == 0
    assert warnings(err, count="2 lines") == [f"transduce: warning: line 2: {note}"]
    record = records(out)[1]
    assert record["notes"] == [note]
    found = [translation.hypotheses[0] for translation in translator.translate(parts)]
    assert record["text"] == " ".join(one.text for one in found if one.text)
    assert record["tokens"] == [token for one in found for token in one.tokens]
    assert record["score"] == pytest.approx(sum(one.log_probability for one in found), abs=1e-5)
    read_pieces = [vocabulary.id_of(piece) for piece in record["source_tokens"]]
    assert read_pieces == [piece for part in parts for piece in vocabulary.encode(part)]
    # A token sees the source of its own part alone.
    weights = record["alignment"]
    assert [len(row) for row in weights] == [len(read_pieces)] * len(record["tokens"])
    width = len(vocabulary.encode(parts[0]))
    assert sum(weights[0][:width]) == pytest.approx(1, abs=1e-4)
    assert sum(weights[-1][:width]) == 0


def test_no_lines_give_no_lines(command, workdir: Path, tmp_path: Path) -> None:
    status, out, err = command("translate", workdir, "--input", write(tmp_path / "none", []))
    assert (status, out, warnings(err, count="0 lines")) == (0, "", [])


@pytest.mark.parametrize("bad", [b"caf\xe9", b"a\0b"])
def test_bad_bytes_in_what_is_measured_or_forced_are_refused_with_file_and_line(
    command, workdir: Path, tmp_path: Path, bad: bytes
) -> None:
    """T11: exit 2, one line that says where, and no output; what was there stays."""
    data = b"the man\n" + bad + b"\n"
    source, good = tmp_path / "source", write(tmp_path / "good", ["a", "b"])
    source.write_bytes(data)
    new, old = tmp_path / "new", write(tmp_path / "old", ["earlier"])
    named = f"transduce: {source}, line 2: "
    for arguments in (
        ["translate", workdir, "--input", good, "--prefix", source],
        ["translate", workdir, "--input", good, "--prefix", source, "--output", new],
        ["translate", workdir, "--input", good, "--prefix", source, "--output", old],
        ["evaluate", workdir, "--source", source, "--reference", good],
        ["evaluate", workdir, "--source", good, "--reference", good, source],
    ):
        status, out, err = command(*arguments)
        assert (status, out, err.count("\n"), err[: len(named)]) == (2, "", 1, named)
    with standard_input(data, folder=tmp_path):
        status, out, err = command("evaluate", workdir, "--source", "-", "--reference", good)
    assert (status, out) == (2, "")
    assert err.startswith("transduce: standard input, line 2: ")
    assert not new.exists()
    assert read(old) == ["earlier"]


def test_different_lengths_are_refused_before_any_work(
    command, workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T7: both files and both counts are named; nothing is translated or scored."""
    monkeypatch.setattr("transduce.decoding.translator.Translator.translate", None)
    monkeypatch.setattr("transduce.decoding.verbs.score_pairs", None)
    two, three = (write(tmp_path / str(n), ["a"] * n) for n in (2, 3))
    out = tmp_path / "out"
    for arguments in (
        ["score", workdir, "--source", two, "--target", three],
        ["translate", workdir, "--input", two, "--prefix", three, "--output", out],
        ["evaluate", workdir, "--source", two, "--reference", three],
        ["evaluate", workdir, "--source", two, "--reference", two, three],
        ["evaluate", workdir, "--source", two, "--reference", two, "--reference", three],
    ):
        status, out_text, err = command(*arguments)
        assert (status, out_text, err.count("\n")) == (2, "", 1)
        assert f"{two} has 2" in err
        assert f"{three} has 3" in err
    assert not out.exists()


def test_a_full_disk_is_an_error_that_says_what_is_whole(
    command, workdir: Path, tmp_path: Path
) -> None:
    source = write(tmp_path / "source", ["", ""])
    status, out, err = command("translate", workdir, "--input", source, "--output", "/dev/full")
    assert (status, out) == (1, "")
    assert err == (
        "transduce: /dev/full: cannot write: No space left on device; its first 0 lines are whole\n"
    )


def test_what_cannot_be_done_is_refused_in_a_line(command, workdir: Path, tmp_path: Path) -> None:
    """D6: and leaves no output."""
    source, empty = write(tmp_path / "source", ["a"]), write(tmp_path / "empty", [])
    translate = ["translate", workdir, "--input", source, "--output", tmp_path / "out"]
    for arguments, message in (
        ([*translate, "--search.beam", 0], "search.beam must be positive"),
        ([*translate, "--n-best", 4], "--n-best 4 is more than search.beam (3)"),
        ([*translate, "--n-best", 0], "--n-best must be positive, not 0"),
        ([*translate, "--batch-size", 0], "--batch-size must be positive, not 0"),
        ([*translate, "--alignments"], "add --format jsonl"),
        ([*translate, "--search.ban", "xyz"], "search.ban: 'xyz' is no piece of the vocabulary"),
        ([*translate, "--search.ban", "</s>"], "search.ban: the end of a sentence cannot be"),
        (["translate", workdir, "--input", tmp_path / "no"], f"{tmp_path}/no: cannot read"),
        ([*translate, "--prefix", tmp_path / "no"], f"{tmp_path}/no: cannot read"),
        (["translate", workdir, "--input", tmp_path], f"{tmp_path}: cannot read: Is a directory"),
        (
            ["translate", workdir, "--input", source, "--output", tmp_path / "no" / "out"],
            f"{tmp_path}/no/out: cannot write",
        ),
        (["evaluate", workdir, "--source", empty, "--reference", empty], f"{empty} is empty"),
        (["evaluate", workdir, "--source", source], "--reference must name at least one file"),
    ):
        status, out, err = command(*arguments)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert message in err
        assert not (tmp_path / "out").exists()
