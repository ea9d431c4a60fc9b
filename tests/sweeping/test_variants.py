"""Variants, all checked before anything starts."""

from pathlib import Path

import pytest

from tests.sweeping.examples import FILE, variants, write_file
from transduce.cli import TrainArguments, _parse
from transduce.config import Experiment, RequestError
from transduce.config_files import load_experiment, override
from transduce.sweeping.variants import combinations, plan


def as_train_reads(path: str, flags: tuple[str, ...]) -> Experiment:
    words = [path, "--workdir", "W", *flags]
    return _parse(TrainArguments, "train", words, experiment=load_experiment(path)).experiment


def test_a_file_yields_named_variants_in_order(tmp_path: Path) -> None:
    base, one_head, no_dropout = variants(tmp_path)
    assert [base.name, one_head.name, no_dropout.name] == ["base", "A-h1", "D-dropout0"]
    assert base.flags == ()
    assert one_head.flags == ("--model.heads", "1", "--model.d-k", "16")
    assert one_head.changes == "model.heads=1 model.d_k=16"
    assert (one_head.experiment.model.heads, one_head.experiment.model.d_v) == (1, 8)
    assert one_head.beside == {"paper BLEU": 24.9}
    # A whole number for a fraction, as in JSON.
    assert no_dropout.experiment.model.dropout == 0.0


def test_train_reads_the_flags_as_the_same_experiment(tmp_path: Path) -> None:
    changes = {
        "name": "other",
        "model.heads": 1,
        "model.dtype": "bfloat16",
        "optimizer.epsilon": 1e-12,
        "data.pretokenized": True,
        "data.vocabulary.byte_fallback": False,
        "data.folder": "-odd folder",
        "mesh.data": 2,
        "search.ban": ("<unk>", "a b"),
        "search.alpha": 1,
    }
    path = write_file(
        tmp_path,
        FILE.replace(
            'yield Variant("base"', f"yield Variant('all', {changes})\n    yield Variant(\"base\""
        ),
    )
    for variant in plan(path):
        assert as_train_reads(path, variant.flags) == variant.experiment
    back = {"search.ban": (), "data.pretokenized": False, "mesh.data": -1}
    text = FILE.replace(
        "training=", "search=SearchConfig(ban=('x',)), mesh=MeshConfig(data=2), training="
    )
    text = text.replace("rows=8,", "rows=8, pretokenized=True,")
    text = text.replace("CorpusConfig, ", "CorpusConfig, SearchConfig, MeshConfig, ", 1)
    text = text.replace('yield Variant("base", {}', f"yield Variant('base', {back}")
    path = write_file(tmp_path, text)
    assert plan(path)[0].experiment.search.ban == ()
    assert as_train_reads(path, plan(path)[0].flags) == plan(path)[0].experiment


def test_the_command_line_gives_every_combination(tmp_path: Path) -> None:
    path = write_file(tmp_path, FILE.replace("def sweep", "def no_sweep"))
    vary = [["training.seed", "1", "2"], ["model.d-ff", "64", "128", "256"]]
    made = plan(path, vary)
    assert [variant.name for variant in made] == [
        *("training.seed=1,model.d_ff=64", "training.seed=1,model.d_ff=128"),
        *("training.seed=1,model.d_ff=256", "training.seed=2,model.d_ff=64"),
        *("training.seed=2,model.d_ff=128", "training.seed=2,model.d_ff=256"),
    ]
    assert made[5].experiment.model.d_ff == 256
    assert made[5].experiment.training.seed == 2
    # What does not differ from the file needs no flag.
    assert made[0].flags == ("--model.d-ff", "64")


def test_values_are_read_as_their_field_is(tmp_path: Path) -> None:
    base = load_experiment(write_file(tmp_path))

    def value(name: str, text: str) -> object:
        (variant,) = combinations(base, [[name, text]])
        (found,) = variant.overrides.values()
        return found

    assert value("optimizer.epsilon", "1e-9") == 1e-9
    assert value("data.pretokenized", "True") is True
    assert value("model.dtype", "bfloat16") == "bfloat16"
    # A folder's name may look like a number.
    assert value("data.folder", "2014") == "2014"
    (variant,) = combinations(base, [["data.folder", "a/b c"]])
    assert variant.name == "data.folder=a+b+c"


def test_both_together_are_each_with_each(tmp_path: Path) -> None:
    made = plan(write_file(tmp_path), [["training.seed", "5", "6"]])
    assert [variant.name for variant in made[:3]] == [
        *("base-training.seed=5", "base-training.seed=6", "A-h1-training.seed=5")
    ]
    assert len(made) == 6
    assert made[2].experiment.training.seed == 5
    assert made[2].experiment.model.heads == 1
    assert made[2].beside == {"paper BLEU": 24.9}


REFUSED = {
    'Variant("base", {"model.head": 1})': "variant base: unknown field model.head; did you mean "
    "model.heads?",
    'Variant("base", {"model": {}})': "variant base: unknown field model",
    'Variant("base", {"model.heads": "1"})': "variant base: model.heads must be of type int, not "
    "'1'",
    'Variant("base", {"model.dropout": 1.5})': "variant base: model.dropout must be at least 0",
    'Variant("base", {"data.rows": 9})': r"variant base: data.rows \(9\) must be a multiple of",
    'Variant("base", {"data.corpora": ()})': "variant base: data.corpora is set in the exp",
    'Variant("base", {"search.ban": ["-x"]})': "search.ban: nothing in it may begin with a dash",
    'Variant("a/b")': "becomes that of its workdir.*'a/b'",
    'Variant("..")': "becomes that of its workdir",
    'Variant("")': "becomes that of its workdir",
    'Variant("report")': "and not report",
    'Variant("a-H1", {"model.heads": 4})': "variants a-H1 and A-h1 would share a workdir",
    'Variant("A-h1", {"model.heads": 4})': "variants A-h1 and A-h1 would share a workdir",
    'Variant("same", {"model.heads": 1, "model.d_k": 16})': "variants same and A-h1 are the same",
    '("base", {})': "must yield Variant",
    "Variant(3)": "must yield Variant",
    'Variant("a", [1])': "must yield Variant",
    'Variant("a", {3: 4})': "must yield Variant",
    "1 / 0": "does not run: ZeroDivisionError",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_variant_that_cannot_be_is_refused(tmp_path: Path, line: str) -> None:
    path = write_file(tmp_path, FILE.replace('Variant("base", {}, {"paper BLEU": 25.8})', line))
    with pytest.raises(RequestError, match=f"small.py.*{REFUSED[line]}"):
        plan(path)


def test_what_is_asked_for_badly_on_the_command_line_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path)
    for vary, message in (
        ([["training.seed"]], "--vary training.seed: name a field and its values"),
        ([["training.seed", "1"], ["training.seed", "2"]], "is given twice"),
        ([["training.sed", "1"]], "unknown field training.sed; did you mean training.seed?"),
        ([["training.seed", "1", "1"]], "would share a workdir"),
        ([["data.pretokenized", "true"]], "must be of type bool, not 'true'"),
    ):
        with pytest.raises(RequestError, match=message):
            plan(path, vary)
    with pytest.raises(RequestError, match="has no function sweep"):
        plan(write_file(tmp_path, FILE.replace("def sweep", "def no_sweep")))


def test_fields_are_overridden_together(tmp_path: Path) -> None:
    """What goes with no old value may go with another new one."""
    base = load_experiment(write_file(tmp_path))
    made = override(base, {"data.readers": 3, "data.rows": 9}, origin="here")
    assert (made.data.readers, made.data.rows) == (3, 9)
    with pytest.raises(RequestError, match=r"^here: data.rows \(8\) must be a multiple of"):
        override(base, {"data.readers": 3}, origin="here")
