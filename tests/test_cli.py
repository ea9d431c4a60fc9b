"""The program as a whole: its verbs, how it is asked, and how it ends."""

import json
from pathlib import Path

import pytest

from transduce.cli import VERBS, run


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """A reference and two systems, the second of which is the reference."""
    made = []
    for name, lines in (
        ("reference", ["the man runs home .", "a dog sleeps in the house ."]),
        ("one", ["the man runs away .", "the dog sleeps in a house ."]),
        ("two", ["the man runs home .", "a dog sleeps in the house ."]),
    ):
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        made.append(str(path))
    return made


def test_the_program_says_what_it_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Help that was asked for is a result; help in place of a verb is an error's message."""
    assert run(["--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for verb in VERBS:
        assert f"\n  {verb}" in out
    assert run([]) == 2
    assert capsys.readouterr() == ("", out)


def test_a_verb_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["transalte", "W"]) == 2
    assert capsys.readouterr() == ("", "transduce: no verb 'transalte'; did you mean translate?\n")


NEEDED = {
    "train": ["W", "--workdir", "R"],
    "translate": ["W"],
    "score": ["W", "--source", "F", "--target", "F"],
    "evaluate": ["W", "--source", "F", "--reference", "F"],
    "compare": [],
    "brackets": ["F", "F"],
    "plan": ["W", "--on", "cpu"],
    "sweep": ["F", "--workdir", "R"],
    "attend": ["W", "--source", "A", "--output", "F.html"],
}
"""What a verb cannot do without."""


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_option_is_refused(
    verb: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The files are not looked at for it."""
    monkeypatch.setattr("transduce.cli._first_positional", lambda _: None)
    with pytest.raises(SystemExit) as refused:
        run([verb, *NEEDED[verb], "--averge", "2"])
    assert refused.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "--averge" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", "--input", "F", "W"],
        ["evaluate", "--source", "F", "--reference", "F", "--best", "W"],
        ["train", "--workdir", "R", "W"],
    ],
)
def test_what_options_have_their_defaults_from_comes_first(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Not found, it would leave the options with other defaults, and nobody would know."""
    assert run(arguments) == 2
    assert capsys.readouterr() == ("", "transduce: W must come before all options\n")


def test_compare_writes_what_it_found(texts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """E2: each reference and each system by an option of its own."""
    reference, one, two = texts
    systems = ["--system", one, "--system", two, "--samples", "50"]
    assert run(["compare", "--reference", reference, *systems]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == ""
    assert (found["sentences"], found["samples"], found["seed"]) == (2, 50, 12345)
    assert [each["system"] for each in found["systems"]] == [one, two]
    assert found["systems"][1]["bleu"]["score"] == pytest.approx(100)
    assert run(["compare", "--reference", reference, "--system", one]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert run(["compare", "--reference", reference, "--reference", one, *systems]) == 0
    assert "nrefs:2" in json.loads(capsys.readouterr().out)["bleu_signature"]


def test_brackets_writes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E3."""
    trees = tmp_path / "trees"
    trees.write_text("(TOP (S (NP (PRP It)) (VP (VBD ran))))\n", encoding="utf-8")
    assert run(["brackets", str(trees), str(trees)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "Bracketing FMeasure       = 100.00\n" in out
    assert run(["brackets", str(trees), str(tmp_path / "no")]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"transduce: {tmp_path}/no: cannot read: No such file or directory\n")
