"""The paper's Table 3, every row, and its shrunk copy."""

from dataclasses import replace
from pathlib import Path

import pytest

from transduce.config_files import load_experiment
from transduce.model.arithmetic import parameters
from transduce.sweeping.variants import Planned, plan

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"

# Read from the paper once more: N, d_model, d_ff, h, d_k, d_v, P_drop, epsilon_ls, thousands of
# updates; perplexity, BLEU, and millions of parameters where it gives them.
TABLE_3 = """
base            6  512 2048  8  64  64 0.1 0.1 100  4.92 25.8  65
A-h1            6  512 2048  1 512 512 0.1 0.1 100  5.29 24.9   -
A-h4            6  512 2048  4 128 128 0.1 0.1 100  5.00 25.5   -
A-h16           6  512 2048 16  32  32 0.1 0.1 100  4.91 25.8   -
A-h32           6  512 2048 32  16  16 0.1 0.1 100  5.01 25.4   -
B-dk16          6  512 2048  8  16  64 0.1 0.1 100  5.16 25.1  58
B-dk32          6  512 2048  8  32  64 0.1 0.1 100  5.01 25.4  60
C-N2            2  512 2048  8  64  64 0.1 0.1 100  6.11 23.7  36
C-N4            4  512 2048  8  64  64 0.1 0.1 100  5.19 25.3  50
C-N8            8  512 2048  8  64  64 0.1 0.1 100  4.88 25.5  80
C-d256          6  256 2048  8  32  32 0.1 0.1 100  5.75 24.5  28
C-d1024         6 1024 2048  8 128 128 0.1 0.1 100  4.66 26.0 168
C-dff1024       6  512 1024  8  64  64 0.1 0.1 100  5.12 25.4  53
C-dff4096       6  512 4096  8  64  64 0.1 0.1 100  4.75 26.2  90
D-dropout0.0    6  512 2048  8  64  64 0.0 0.1 100  5.77 24.6   -
D-dropout0.2    6  512 2048  8  64  64 0.2 0.1 100  4.95 25.5   -
D-smoothing0.0  6  512 2048  8  64  64 0.1 0.0 100  4.67 25.3   -
D-smoothing0.2  6  512 2048  8  64  64 0.1 0.2 100  5.47 25.7   -
E-learned       6  512 2048  8  64  64 0.1 0.1 100  4.92 25.7   -
big             6 1024 4096 16  64  64 0.3 0.1 300  4.33 26.4 213
"""
ROWS = {words[0]: words[1:] for words in map(str.split, TABLE_3.strip().splitlines())}


def variants(name: str) -> dict[str, Planned]:
    return {variant.name: variant for variant in plan(str(EXPERIMENTS / f"{name}.py"))}


PAPER = variants("table3_wmt14")


def test_every_row_is_there() -> None:
    assert list(PAPER) == list(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_the_papers(name: str) -> None:
    made, row = PAPER[name].experiment, ROWS[name]
    model = made.model
    assert model.encoder_layers == model.decoder_layers == int(row[0])
    widths = (model.d_model, model.d_ff, model.heads, model.d_k, model.d_v)
    assert widths == tuple(map(int, row[1:6]))
    assert (model.dropout, made.training.label_smoothing) == (float(row[6]), float(row[7]))
    assert made.training.steps == 1000 * int(row[8])
    assert model.positions == ("learned" if name == "E-learned" else "sinusoidal")
    beside = PAPER[name].beside
    assert (beside["paper perplexity"], beside["paper BLEU"]) == (row[9], row[10])
    assert str(beside.get("paper parameters, millions", "-")) == row[11]


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row[11] != "-"])
def test_our_parameters_are_the_papers_but_for_the_vocabulary(name: str) -> None:
    """The paper's "about 37,000" pieces (section 5.1) fit none of its counts.

    With 41,100 rows in the table all of them come out, rounded to millions, but that of big, for
    which 35,800 would: its vocabulary seems to have been another one.
    """
    model, paper = PAPER[name].experiment.model, int(ROWS[name][11])

    def millions(rows: int) -> int:
        return round(parameters(replace(model, vocabulary_size=rows)).total / 1e6)

    assert millions(35_800 if name == "big" else 41_100) == paper
    # As the table has 37,000 rows here, what is missing is 4,100 rows of d_model, and of big
    # 1,200 are too many.
    missing = -1_200 if name == "big" else 4_100
    ours = parameters(model).total
    assert abs(ours + missing * model.d_model - 1e6 * paper) <= 0.5e6


@pytest.mark.parametrize("size", ["base", "big"])
def test_base_and_big_are_those_of_the_files_of_their_own(size: str) -> None:
    other = load_experiment(str(EXPERIMENTS / f"wmt14_ende_{size}.py"))
    assert PAPER[size].experiment == replace(other, name="table3_wmt14")


def test_the_shrunk_table_has_the_same_rows() -> None:
    small = variants("table3_multi30k")
    assert [name.split("-")[0] for name in small] == [name.split("-")[0] for name in PAPER]
    for one, other in zip(small.values(), PAPER.values(), strict=True):
        for what in ("paper perplexity", "paper BLEU"):
            assert one.beside[what] == other.beside[what]
        changed = {word.split("=")[0] for word in one.changes.split() if "learned" not in word}
        kept = {word.split("=")[0] for word in other.changes.split() if "learned" not in word}
        if one.name != "big":
            assert changed == kept, one.name
    model = load_experiment(str(EXPERIMENTS / "multi30k_ende_tiny.py")).model
    assert small["base"].experiment.model == replace(model, dropout=0.1)
    heads = [variant.experiment.model for name, variant in small.items() if name.startswith("A")]
    # The amount of computation stays the same (section 6.2).
    assert {each.heads * each.d_k for each in heads} == {model.heads * model.d_k}
    assert {each.heads * each.d_v for each in heads} == {model.heads * model.d_v}


def test_positions_differ_in_nothing_else() -> None:
    made = variants("positions_multi30k")
    assert list(made) == ["sinusoidal", "learned", "rotary"]
    models = [variant.experiment.model for variant in made.values()]
    assert [model.positions for model in models] == list(made)
    assert len({replace(model, positions="sinusoidal") for model in models}) == 1
