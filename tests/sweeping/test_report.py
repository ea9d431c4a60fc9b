"""One table of all variants, from what their runs have left."""

import csv
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sacrebleu.metrics.bleu import BLEU

from tests.sweeping.examples import DEV, leave, variants, write_corpus, write_file
from transduce.config import RequestError
from transduce.sweeping.report import as_csv, as_markdown, make_table
from transduce.sweeping.verb import sweep

WORSE = ["die rote Lampe ist neu .", *DEV[1:3], "der Hund schläft in der Straße ."]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """base is done, A-h1 is done and worse, D-dropout0 is on its way."""
    monkeypatch.setenv("TRANSDUCE_DATA", str(tmp_path))
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    write_corpus(tmp_path)
    base, one_head, no_dropout = variants(tmp_path)
    leave(base, tmp_path, step=20, perplexity=4.92)
    leave(one_head, tmp_path, step=20, translations=WORSE, perplexity=5.29)
    leave(no_dropout, tmp_path, step=10, over=False)
    return tmp_path


def test_what_is_done_is_measured(folder: Path) -> None:
    table = make_table(variants(folder), str(folder))
    base, one_head, no_dropout = table.rows
    # The table 300 x 32; three sub-layers of attention, 4 x 32 x 16 each; two of feed-forward,
    # 2 x 32 x 32 + 32 + 32; five normalisations, 2 x 32.
    assert base.parameters == 9600 + 3 * 2048 + 2 * 2112 + 5 * 64
    # One head, whose keys are as wide and whose values half as wide: 3 x 2 x 32 x 8 fewer.
    assert one_head.parameters == base.parameters - 1536
    assert (base.perplexity, one_head.perplexity, no_dropout.perplexity) == (4.92, 5.29, None)
    assert base.bleu is not None
    assert base.bleu.score == pytest.approx(100)
    assert base.bleu.half_width == pytest.approx(0)
    assert one_head.bleu is not None
    assert one_head.bleu.score == pytest.approx(BLEU().corpus_score(WORSE, [DEV]).score)
    assert one_head.bleu.half_width > 0
    assert one_head.test_bleu is not None
    assert no_dropout.bleu is no_dropout.test_bleu is no_dropout.seconds is None


def test_the_table_is_in_markdown(folder: Path) -> None:
    lines = as_markdown(make_table(variants(folder), str(folder))).splitlines()
    assert lines[0] == (
        "| variant | parameters | steps | dev perplexity | dev BLEU | p | test BLEU | minutes "
        "| paper BLEU |"
    )
    assert lines[1] == "| " + " | ".join(["---"] * 9) + " |"
    assert lines[2] == (
        "| base | 20,288 | 20 | 4.92 | 100.00 ± 0.00 |  | 100.00 ± 0.00 | 1.5 | 25.8 |"
    )
    assert lines[3].startswith("| A-h1 | 18,752 | 20 | 5.29 | ")
    assert lines[4] == "| D-dropout0 | 20,288 | 10 of 20 |  |  |  |  |  |  |"
    assert lines[6].startswith("dev BLEU: sacreBLEU, 4 sentences, nrefs:1|bs:1000|seed:12345|case")
    assert lines[6].endswith("to base, one tail, not corrected for the number of variants.")


def test_the_same_is_in_csv(folder: Path) -> None:
    text = as_csv(make_table(variants(folder), str(folder)))
    base, one_head, no_dropout = csv.DictReader(text.splitlines())
    assert one_head["changes"] == "model.heads=1 model.d_k=16"
    assert float(one_head["dev_bleu"]) == pytest.approx(BLEU().corpus_score(WORSE, [DEV]).score)
    assert 0 < float(one_head["dev_bleu_p"]) <= 1
    assert (base["dev_bleu_p"], base["seconds"], base["paper BLEU"]) == ("", "90.0", "25.8")
    assert (no_dropout["done"], no_dropout["dev_bleu"], no_dropout["paper BLEU"]) == (
        "False",
        "",
        "",
    )


def test_a_report_is_repeatable_and_has_a_picture(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []
    for _ in range(2):
        sweep(write_file(folder), str(folder), report=True)
        made.append({p.name: p.read_bytes() for p in (folder / "report").iterdir()})
    assert made[0] == made[1]
    assert made[0].keys() == {"table.md", "table.csv", "picture.svg"}
    assert capsys.readouterr().out == 2 * made[0]["table.md"].decode()
    picture = ElementTree.fromstring(made[0]["picture.svg"])
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    words = {text for element in picture.iter() for text in [element.text or ""]}
    assert {"base", "A-h1", "dev BLEU, 95% interval", "dev perplexity"} <= words
    assert "D-dropout0" not in words


def test_one_variant_alone_has_an_interval_too(folder: Path) -> None:
    one_head = variants(folder)[1]
    (row,) = make_table([one_head], str(folder)).rows
    assert row.bleu is not None
    assert row.bleu.half_width > 0
    assert row.bleu.p_value is None


def test_translations_that_cannot_be_compared_are_named(folder: Path) -> None:
    stored = folder / "A-h1" / "translations" / "dev-20.txt"
    stored.write_text("\n".join(WORSE[:3]) + "\n")
    with pytest.raises(
        RequestError, match="base and A-h1 have translated 4 and 3 sentences of dev"
    ):
        make_table(variants(folder), str(folder))
    stored.unlink()
    with pytest.raises(RequestError, match=r"dev-20\.txt: is not there: the run of A-h1"):
        make_table(variants(folder), str(folder))


def test_of_nothing_there_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no variant has a checkpoint"):
        sweep(write_file(tmp_path), str(tmp_path / "none"), report=True)
    assert not (tmp_path / "none").exists()


def test_one_thing_is_asked_for_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="--print, --submit and --report exclude each other"):
        sweep(write_file(tmp_path), str(tmp_path), report=True, commands=True)
