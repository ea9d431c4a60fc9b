import dataclasses
import json
from pathlib import Path

import pytest

from transduce.config import (
    CorpusConfig,
    DataConfig,
    Experiment,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    RequestError,
    SearchConfig,
    TrainingConfig,
    VocabularyConfig,
)
from transduce.config_files import flatten, from_json, load_experiment, to_json

# No section and no kind of value (text, number, choice, tuple, corpus) is at its default.
UNUSUAL = Experiment(
    name="unusual",
    model=ModelConfig(vocabulary_size=99, positions="rotary", norm="pre", dropout=0.25),
    data=DataConfig(
        corpora=(
            CorpusConfig(
                name="one",
                source_language="en",
                target_language="de",
                train=("a\u2028", 'b"'),
                dev=("c", "d"),
            ),
            CorpusConfig(
                name="two", source_language="en", target_language="de", builder="phrasebook"
            ),
        ),
        folder="größe",
        vocabulary=VocabularyConfig(size=98, kind="unigram", byte_fallback=False),
    ),
    optimizer=OptimizerConfig(epsilon=1e-12),
    mesh=MeshConfig(data=2),
    training=TrainingConfig(label_smoothing=0.0, seed=7),
    search=SearchConfig(alpha=1.5),
)


def test_json_there_and_back_is_the_same_experiment() -> None:
    assert from_json(to_json(UNUSUAL), origin="x") == UNUSUAL
    assert from_json(to_json(Experiment(name="x")), origin="x") == Experiment(name="x")


def test_json_has_every_field() -> None:
    def names(value: object) -> set[str]:
        if not dataclasses.is_dataclass(value):
            return set()
        return {field.name for field in dataclasses.fields(value)}

    written = json.loads(to_json(UNUSUAL))
    assert set(written) == names(UNUSUAL)
    for section in ("model", "data", "optimizer", "mesh", "training", "search"):
        assert set(written[section]) == names(getattr(UNUSUAL, section)), section
    assert written["data"]["corpora"][1]["builder"] == "phrasebook"


def test_json_may_leave_out_what_has_a_default_and_write_whole_numbers_for_others() -> None:
    read = from_json('{"name": "x", "optimizer": {"clip_norm": 1}}', origin="x")
    assert read == Experiment(name="x", optimizer=OptimizerConfig(clip_norm=1.0))
    assert type(read.optimizer.clip_norm) is float


def test_flatten_gives_dotted_names() -> None:
    flat = flatten(UNUSUAL)
    assert flat["name"] == "unusual"
    assert flat["data.vocabulary.kind"] == "unigram"
    assert flat["search.alpha"] == 1.5
    assert "data.vocabulary" not in flat


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"name": "x", "modle": {}}', "unknown field modle; did you mean model?"),
        (
            '{"name": "x", "model": {"d_modle": 4}}',
            "unknown field model.d_modle; did you mean d_model?",
        ),
        (
            '{"name": "x", "data": {"vocabulary": {"zzz": 4}}}',
            "unknown field data.vocabulary.zzz",
        ),
        ("{}", "missing field name"),
        (
            '{"name": "x", "data": {"corpora": [{"name": "c"}]}}',
            "missing field data.corpora[0].source_language, target_language",
        ),
        ('{"name": 3}', "name must be of type str, not 3"),
        ('{"name": "x", "model": 3}', "model must be of type ModelConfig, not 3"),
        (
            '{"name": "x", "model": {"heads": "8"}}',
            "model.heads must be of type int, not '8'",
        ),
        (
            '{"name": "x", "model": {"heads": true}}',
            "model.heads must be of type int, not True",
        ),
        (
            '{"name": "x", "model": {"heads": 8.0}}',
            "model.heads must be of type int, not 8.0",
        ),
        (
            '{"name": "x", "model": {"dropout": null}}',
            "model.dropout must be of type float, not None",
        ),
        (
            '{"name": "x", "model": {"norm": "rms"}}',
            "model.norm must be one of ('post', 'pre'), not 'rms'",
        ),
        (
            '{"name": "x", "data": {"corpora": [{"name": "c", "source_language": "en", '
            '"target_language": "de", "train": ["a"]}]}}',
            "data.corpora[0].train must have 2 items, not 1",
        ),
        ('{"name": "x", "model": {"heads": 0}}', "model.heads must be positive, not 0"),
    ],
)
def test_a_wrong_json_is_refused_by_file_and_key(text: str, message: str) -> None:
    with pytest.raises(RequestError) as raised:
        from_json(text, origin="w/config.json")
    assert str(raised.value) == f"w/config.json: {message}"


def test_what_is_not_json_is_refused_by_file_and_line() -> None:
    with pytest.raises(RequestError, match=r"^w/config\.json: .*line 2"):
        from_json('{\n"name": }', origin="w/config.json")


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_an_experiment_file_gives_its_experiment(tmp_path: Path) -> None:
    path = write(
        tmp_path / "e.py",
        "from transduce.config import Experiment\n"
        "def experiment():\n    return Experiment(name=__file__)\n",
    )
    assert load_experiment(path) == Experiment(name=path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def experiment(:\n", "cannot read the experiment: .*line 1"),
        ("x = '\0'\n", "cannot read the experiment"),
        ("x = 1\n", r"must define a function experiment\(\) -> Experiment"),
        ("experiment = 3\n", r"must define a function experiment\(\) -> Experiment"),
        ("import tranduce\n", "does not run: ModuleNotFoundError: No module named 'tranduce'"),
        (
            "from transduce.config import ModelConfig\n"
            "def experiment():\n    return ModelConfig(d_modle=3)\n",
            "does not run: TypeError: .*'d_modle'",
        ),
        (
            "from transduce.config import ModelConfig\n"
            "def experiment():\n    return ModelConfig(heads=0)\n",
            "model.heads must be positive, not 0",
        ),
        (
            "def experiment():\n    return {}\n",
            r"experiment\(\) must return an Experiment, not \{\}",
        ),
    ],
)
def test_a_file_that_is_no_experiment_is_refused_by_name(
    tmp_path: Path, text: str, message: str
) -> None:
    path = write(tmp_path / "e.py", text)
    with pytest.raises(RequestError, match=f"^{path}: {message}"):
        load_experiment(path)


def test_a_missing_or_unreadable_experiment_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    for path in (tmp_path / "none.py", tmp_path, tmp_path / "latin.py"):
        with pytest.raises(RequestError, match=f"^{path}: cannot read the experiment: "):
            load_experiment(str(path))
