"""What `attend` writes and what it refuses."""

import base64
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transduce.config import RequestError
from transduce.decoding.translator import Translator
from transduce.decoding.workdir import Trained, load
from transduce.text.vocabulary import Vocabulary
from transduce.viewing import verb
from transduce.viewing.attention import attention_of

from .test_page import data_of


@pytest.fixture(scope="module")
def trained(workdir: Path) -> Trained:
    return load([str(workdir)])


def attend(trained: Trained, output: Path | str, **options: Any) -> None:
    given = {"source": "the dog runs", "target": "a dog", "name": "W", **options}
    style = given.pop("style", None) or verb.format_of(str(output))
    verb.attend(trained, trained.experiment.search, output=str(output), style=style, **given)


def test_without_a_target_it_is_the_models_own_translation(
    trained: Trained, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    attend(trained, tmp_path / "page.html", target=None)
    data = data_of((tmp_path / "page.html").read_text(encoding="utf-8"))
    search = trained.experiment.search
    (found,) = Translator(trained.models, vocabulary, search).translate(["the dog runs"])
    assert data["tokens"]["target"] == list(found.hypotheses[0].tokens)
    assert data["about"][:2] == [
        ["Source", "the dog runs"],
        ["Translation", found.hypotheses[0].text],
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_weights_on_the_page_are_those_of_the_pair(
    trained: Trained, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    """D12."""
    attend(trained, tmp_path / "page.html", show=["decoder.0.1", "cross.0"])
    data = data_of((tmp_path / "page.html").read_text(encoding="utf-8"))
    source, target = vocabulary.encode("the dog runs"), vocabulary.encode("a dog")
    expected = attention_of(trained.models[0], vocabulary, source, target)
    assert data["tokens"]["read"] == ["<s>", *vocabulary.names(target[:-1])]
    assert data["start"] == {"kind": "decoder", "layer": 0, "heads": [1]}
    assert data["about"][1] == ["Target", "a dog"]
    assert data["tokens"]["target"] == list(expected.target)
    for kind, weights in expected.weights.items():
        values = np.frombuffer(base64.b64decode(data["kinds"][kind]["weights"]), "<f4")
        np.testing.assert_array_equal(values.reshape(weights.shape), weights)


def test_masked_heads_are_named_and_change_what_comes_after(
    workdir: Path, trained: Trained, tmp_path: Path
) -> None:
    attend(trained, tmp_path / "whole.html")
    attend(load([str(workdir)], mask_heads=["encoder.0.1"]), tmp_path / "masked.html")
    whole, masked = (
        data_of((tmp_path / f"{name}.html").read_text(encoding="utf-8"))
        for name in ("whole", "masked")
    )
    assert masked["masked"] == ["encoder.0.1"]
    assert masked["about"][-1] == ["Masked heads", "encoder.0.1"]
    # The only layer of each stack sees the same, and cross-attention another encoder's output.
    for kind, same in (("encoder", True), ("decoder", True), ("cross", False)):
        weights = [data["kinds"][kind]["weights"] for data in (whole, masked)]
        assert (weights[0] == weights[1]) is same


def test_a_picture_is_what_the_ending_or_the_format_says(trained: Trained, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra view is not installed")
    attend(trained, tmp_path / "one.PNG", show=["cross.0", "encoder.0.1"])
    attend(trained, tmp_path / "two.txt", style="svg")
    assert (tmp_path / "one.PNG").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "two.txt").read_bytes()


def test_the_page_goes_to_standard_output_and_to_devices(
    trained: Trained, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    attend(trained, "-", style="html")
    assert capfdbinary.readouterr().out.startswith(b"<!doctype html>")
    attend(trained, "/dev/null", style="html")
    assert Path("/dev/null").is_char_device()


def test_a_link_stays_and_its_file_is_written(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "page.html").symlink_to("real.html")
    attend(trained, tmp_path / "page.html")
    assert (tmp_path / "page.html").is_symlink()
    assert (tmp_path / "real.html").read_bytes().startswith(b"<!doctype html>")
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "real.html"}


def test_bytes_that_are_no_text_are_read_as_such(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command line may hold any bytes."""
    attend(trained, tmp_path / "page.html", source="the \udcff dog")
    data = data_of((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert data["about"][0] == ["Source", "the \ufffd dog"]
    assert "--source: 1 byte" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "two\nlines"}, "--source must be one line"),
        ({"target": "two\nlines"}, "--target must be one line"),
        ({"source": " ", "target": None}, "--source is blank"),
        ({"source": ""}, "--source is blank"),
        ({"source": "the dog " * 40, "target": None}, "--source: source of .* pieces cut"),
        ({"show": ["cross.1"]}, r"cross\.1: cross has layers 0 to 0, and no layer 1"),
        ({"output": "page"}, r"--output page: is no name that ends in \.html, \.png, \.svg"),
        ({"output": ".html"}, r"--output \.html: is no name that ends in"),
        ({"output": "/dev/null/page.html"}, "page.html: cannot write: Not a directory"),
        ({"output": f"{'page' * 70}.html"}, "page.html: cannot write: File name too long"),
        ({"output": "no/such/folder/page.html"}, "page.html: cannot write: No such file"),
    ],
)
def test_a_wrong_request_is_refused_and_leaves_nothing(
    trained: Trained,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match=message):
        attend(trained, **{"output": "page.html", **options})
    assert not list(tmp_path.iterdir())


def test_an_ensemble_is_refused(workdir: Path, second: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="leave out --ensemble"):
        attend(load([str(workdir), str(second)]), tmp_path / "page.html")


def test_a_missing_matplotlib_is_named_with_what_installs_it(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "transduce.viewing.picture", raising=False)
    with pytest.raises(RequestError, match=r"--format png needs matplotlib: .*\[view\]"):
        attend(trained, tmp_path / "page.png")


def test_a_parsers_tree_stands_beside_its_attention(
    trained: Trained, tmp_path: Path, vocabulary_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = Vocabulary(vocabulary_file)
    parser.symbols = {"(S": 40, ")S": 41, "NN": 42}
    parsing = replace(trained, vocabulary=parser)
    tree = "(S (NN dog) (NN runs))"
    attend(parsing, tmp_path / "page.html", source="dog runs", target=tree)
    data = data_of((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert data["tokens"]["target"] == ["(S", "NN", "NN", ")S", "</s>"]
    assert data["tree"]["brackets"] == tree
    assert data["tree"]["rows"] == [0, 1, 2, 0, -1]
    assert data["about"][1] == ["Target", tree]
    with pytest.raises(RequestError, match="one tree over the words of --source: dog sleeps"):
        attend(parsing, tmp_path / "no.html", source="dog sleeps", target=tree)
    bracket = "(S (NN -LRB-) (NN runs))"
    attend(parsing, tmp_path / "page.html", source="( runs", target=bracket)
    # What the random model writes is no tree: it is repaired, and that is said.
    attend(parsing, tmp_path / "page.html", source="dog runs", target=None)
    data = data_of((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert [word for _, word, _ in data["tree"]["nodes"] if word] == ["dog", "runs"]
    assert "the output is no tree over the words" in capsys.readouterr().err
