"""translate, score and evaluate as the command line runs them, on workdirs that hold a model."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from transduce.cli import run
from transduce.config import Experiment
from transduce.decoding.scoring import score_ids
from transduce.decoding.translator import Translator
from transduce.model.transformer import Transformer
from transduce.text.vocabulary import Vocabulary

PROGRAM = [sys.executable, "-c", "from transduce.cli import main; main()"]


def write(path: Path, lines: Sequence[str]) -> Path:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def read(path: Path) -> list[str]:
    *lines, last = path.read_bytes().decode().split("\n")
    assert last == ""
    return lines


@contextmanager
def standard_input(data: bytes, folder: Path) -> Iterator[None]:
    (folder / "standard input").write_bytes(data)
    ours = os.dup(0)
    file = os.open(folder / "standard input", os.O_RDONLY)
    os.dup2(file, 0)
    try:
        yield
    finally:
        os.dup2(ours, 0)
        os.close(ours)
        os.close(file)


def best(model: Transformer, vocabulary: Vocabulary, experiment: Experiment, lines) -> list[str]:
    found = Translator(model, vocabulary, experiment.search).translate(lines)
    return [translation.hypotheses[0].text for translation in found]


def test_files_gzip_and_standard_streams_give_the_same(
    command,
    workdir: Path,
    tmp_path: Path,
    sentences: list[str],
    model,
    vocabulary,
    experiment,
) -> None:
    lines = sentences[:10]
    expected = best(model, vocabulary, experiment, lines)
    assert len(set(expected)) > 5
    plain = write(tmp_path / "plain", lines)
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, packed):
        output = tmp_path / "output"
        assert command("translate", workdir, "--input", path, "--output", output) == (0, "", "")
        assert read(output) == expected
        output.unlink()
    with standard_input(packed.read_bytes(), tmp_path):
        status, out, err = command("translate", workdir)
    assert (status, out, err) == (0, "".join(f"{line}\n" for line in expected), "")


def test_only_newline_ends_a_line(
    command, workdir: Path, tmp_path: Path, model, vocabulary, experiment
) -> None:
    """T1, T3: whatever else other programs take for the end of a line is inside one."""
    lines = ["a\rb", "the man\r", "a\u2028b", "a\x85b", "a\x0bb", "\x0c", "", "a\x1c\x1db\u2029"]
    source = write(tmp_path / "source", lines)
    status, _, err = command("translate", workdir, "--input", source, "--output", tmp_path / "out")
    assert (status, err) == (0, "")
    expected = best(model, vocabulary, experiment, lines)
    assert (expected[5], expected[6]) == ("", "")
    assert read(tmp_path / "out") == expected


def test_an_overlong_line_is_translated_with_a_warning(
    command, workdir: Path, tmp_path: Path
) -> None:
    """T4, T6."""
    source = write(tmp_path / "source", ["man", "dog", " ".join(["man"] * 400), "the man"])
    status, out, err = command("translate", workdir, "--input", source)
    assert status == 0
    assert out.count("\n") == 4
    assert err == (
        "transduce: warning: line 3: source of 400 pieces cut to 28 (search.max_source_length)\n"
    )


def test_no_lines_give_no_lines(command, workdir: Path, tmp_path: Path) -> None:
    assert command("translate", workdir, "--input", write(tmp_path / "none", [])) == (0, "", "")


@pytest.mark.parametrize("bad", [b"caf\xe9", b"a\0b"])
def test_bad_bytes_are_refused_with_file_and_line(
    command, workdir: Path, tmp_path: Path, bad: bytes
) -> None:
    """T11: exit 2, one line that says where, and no output."""
    data = b"the man\n" + bad + b"\n"
    source, good = tmp_path / "source", write(tmp_path / "good", ["a", "b"])
    source.write_bytes(data)
    to_file = ["--output", tmp_path / "out"]
    named = f"transduce: {source}, line 2: "
    for arguments in (
        ["translate", workdir, "--input", source],
        ["translate", workdir, "--input", source, *to_file],
        ["score", workdir, "--source", source, "--target", good],
        ["score", workdir, "--source", good, "--target", source],
        ["evaluate", workdir, "--source", source, "--reference", good],
        ["evaluate", workdir, "--source", good, "--reference", good, source],
    ):
        status, out, err = command(*arguments)
        assert (status, out, err.count("\n"), err[: len(named)]) == (2, "", 1, named)
    with standard_input(data, tmp_path):
        status, out, err = command("translate", workdir, *to_file)
    assert (status, out) == (2, "")
    assert err.startswith("transduce: standard input, line 2: ")
    assert not (tmp_path / "out").exists()


def test_different_lengths_are_refused_before_any_work(
    command, workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T7: both files and both counts are named; nothing is translated or scored."""
    monkeypatch.setattr("transduce.decoding.verbs.Translator", None)
    monkeypatch.setattr("transduce.decoding.verbs.score_pairs", None)
    two, three = (write(tmp_path / str(n), ["a"] * n) for n in (2, 3))
    for arguments in (
        ["score", workdir, "--source", two, "--target", three],
        ["evaluate", workdir, "--source", two, "--reference", three],
        ["evaluate", workdir, "--source", two, "--reference", two, three],
    ):
        status, out, err = command(*arguments)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert f"{two} has 2" in err
        assert f"{three} has 3" in err


def test_scores_are_log_probabilities(
    command,
    workdir: Path,
    tmp_path: Path,
    sentences: list[str],
    model,
    vocabulary,
    experiment,
) -> None:
    """D3: before each line, with a tab; those of what was searched, by forced scoring."""
    lines = sentences[:6]
    source = write(tmp_path / "source", lines)
    status, out, _ = command("translate", workdir, "--input", source, "--scores")
    assert status == 0
    found = list(Translator(model, vocabulary, experiment.search).translate(lines))
    ids = [translation.hypotheses[0].ids for translation in found]
    scores = score_ids(model, vocabulary.encode_many(lines), ids, block_rows=4)
    rows = [line.split("\t", 1) for line in out.removesuffix("\n").split("\n")]
    assert [float(row[0]) for row in rows] == pytest.approx(scores, abs=1e-4)
    assert [row[1] for row in rows] == [item.hypotheses[0].text for item in found]


def test_score_writes_a_log_probability_a_line(
    command, workdir: Path, tmp_path: Path, sentences: list[str], model, vocabulary
) -> None:
    """D8: in order, empty targets too; either side may be standard input."""
    lines, targets = sentences[:9], [*sentences[9:17], ""]
    source, target = write(tmp_path / "source", lines), write(tmp_path / "target", targets)
    status, out, err = command("score", workdir, "--source", source, "--target", target)
    assert (status, err) == (0, "")
    ids = vocabulary.encode_many(lines), vocabulary.encode_many(targets)
    expected = score_ids(model, *ids, block_rows=4)
    assert [float(line) for line in out.splitlines()] == pytest.approx(expected, abs=1e-5)
    with standard_input(source.read_bytes(), tmp_path):
        assert command("score", workdir, "--source", "-", "--target", target) == (0, out, "")


def test_search_is_overridden_by_options(
    command,
    workdir: Path,
    tmp_path: Path,
    sentences: list[str],
    model,
    vocabulary,
    experiment,
) -> None:
    lines = [line for line in sentences if len(vocabulary.encode(line)) <= 16][:12]
    source = write(tmp_path / "source", lines)
    greedy = replace(experiment, search=replace(experiment.search, beam=1))
    out = command("translate", workdir, "--input", source, "--search.beam", 1)[1]
    assert out.split("\n") == [*best(model, vocabulary, greedy, lines), ""]
    assert out != command("translate", workdir, "--input", source)[1]


def test_evaluate_scores_what_translate_writes(
    command, workdir: Path, tmp_path: Path, sentences: list[str]
) -> None:
    """E1, T6: by the sacrebleu program's figures; a blank and an overlong line count."""
    lines = [*sentences[:20], "", " ".join(["man"] * 400)]
    source = write(tmp_path / "source", lines)
    command("translate", workdir, "--input", source, "--output", tmp_path / "out")
    made = read(tmp_path / "out")
    assert len(made) == 22
    assert not any("\r" in line for line in made)  # the sacrebleu program ends a line there
    one = write(tmp_path / "one", [line[1:] for line in made])
    two = write(tmp_path / "two", [*made[:10], *lines[10:]])
    status, out, err = command("evaluate", workdir, "--source", source, "--reference", one, two)
    assert status == 0
    assert err.count("\n") == 1
    assert "line 22" in err
    found = json.loads(out)
    program = [sys.executable, "-m", "sacrebleu", str(one), str(two), "-i", str(tmp_path / "out")]
    options = ["-m", "bleu", "chrf", "-w", "6"]
    answer = subprocess.run([*program, *options], check=True, capture_output=True, text=True)
    bleu, chrf = json.loads(answer.stdout)
    assert 5 < found["bleu"] < 95
    assert found["bleu"] == pytest.approx(bleu["score"], abs=0.01)
    assert found["chrf"] == pytest.approx(chrf["score"], abs=0.01)
    assert found["bleu_signature"] == bleu["signature"]
    assert found["chrf_signature"] == chrf["signature"]
    assert found["sentences"] == 22


def test_what_cannot_be_done_is_refused_in_a_line(command, workdir: Path, tmp_path: Path) -> None:
    source, empty = write(tmp_path / "source", ["a"]), write(tmp_path / "empty", [])
    for arguments, message in (
        (["translate", workdir, "--search.beam", 0], "search.beam must be positive"),
        (["translate", workdir, "--input", tmp_path / "no"], f"{tmp_path}/no: cannot read"),
        (
            ["translate", workdir, "--input", source, "--output", tmp_path / "no" / "out"],
            f"{tmp_path}/no/out: cannot write",
        ),
        (["evaluate", workdir, "--source", empty, "--reference", empty], f"{empty} is empty"),
        (["transalte", workdir], "did you mean translate?"),
    ):
        status, out, err = command(*arguments)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert message in err


@pytest.mark.parametrize("verb", ["translate", "score", "evaluate"])
def test_an_unknown_flag_is_refused(
    workdir: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        run([verb, str(workdir), "--averge", "2"])
    assert refused.value.code == 2
    assert "--averge" in capsys.readouterr().err


def test_a_pipe_is_read_and_written(
    command, workdir: Path, tmp_path: Path, sentences: list[str]
) -> None:
    """As a program of its own; nothing but translations comes out."""
    lines = [*sentences[:3], "", "a\rb"]
    expected = command("translate", workdir, "--input", write(tmp_path / "source", lines))[1]
    data = (tmp_path / "source").read_bytes()
    answer = subprocess.run([*PROGRAM, "translate", workdir], input=data, capture_output=True)
    assert (answer.returncode, answer.stderr) == (0, b"")
    assert answer.stdout.decode() == expected


def test_a_closed_output_pipe_ends_it_quietly(workdir: Path, tmp_path: Path) -> None:
    """As `transduce translate W | head -1` does; the status is 128 and the number of SIGPIPE."""
    source = write(tmp_path / "source", ["", ""])
    with subprocess.Popen(
        [*PROGRAM, "translate", workdir, "--input", source],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        message = process.stderr.read()
    assert process.returncode == 141
    assert message == b"transduce: standard output was closed before all was written\n"
