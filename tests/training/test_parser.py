"""A run on a treebank: dev is scored by F1, which says which parameters are the best."""

from dataclasses import replace
from pathlib import Path

import pytest

from transduce.config import CorpusConfig, Experiment
from transduce.text.vocabulary import Vocabulary
from transduce.training import loop
from transduce.workdir import Workdir

from .examples import ADJECTIVES, EXPERIMENT, NOUNS, on_one_device, records, write

TREES = [
    tree
    for adjective in ADJECTIVES
    for noun in NOUNS
    for tree in (
        f"(S1 (S (S (NP (DT the) (NN {noun})) (VP (VBZ is) (ADJP (JJ {adjective}))) (. .))))",
        f"(S1 (S (NP (DT a) (JJ {adjective}) (NN {noun})) (. .)))",
    )
]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory) -> Experiment:
    folder = tmp_path_factory.mktemp("trees")
    write(folder / "dev.trees", TREES[::5])
    write(folder / "train.trees", [tree for tree in TREES if tree not in TREES[::5]])
    corpus = CorpusConfig(
        name="trees",
        source_language="en",
        target_language="trees",
        builder="treebank",
        train=("train.trees", ""),
        dev=("dev.trees", ""),
    )
    return replace(
        EXPERIMENT,
        data=replace(EXPERIMENT.data, corpora=(corpus,), folder=str(folder)),
        training=replace(
            EXPERIMENT.training, steps=60, watch="f1", evaluation_sentences=0, guided_attention=0.5
        ),
        search=replace(EXPERIMENT.search, extra_length=16, devices=1),
    )


@pytest.fixture(scope="module")
def finished(experiment: Experiment, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("run") / "W"
    with on_one_device(path.parent / "cache"):
        loop.train(experiment, Workdir.of(str(path)))
    return path


def test_dev_is_scored_by_f1_and_the_best_is_kept(finished: Path) -> None:
    (dev,) = records(finished, "dev")
    assert dev["sentences"] == 8
    assert "bleu" not in dev
    # All that differs between the sentences of a kind is words; one kind alone has an outer S.
    assert dev["f1"] > 90
    assert dev["f1_without_outer_s"] > 90
    assert dev["errors"] == dev["skipped"] == 0
    assert [path.name for path in (finished / "best").iterdir()] == ["60"]
    lines = (finished / "translations" / "dev-60.txt").read_text().splitlines()
    assert len(lines) == 8


def test_attention_learns_where_to_look(finished: Path) -> None:
    first, last = records(finished, "train")
    assert 0 < last["attention_missed"] < first["attention_missed"] / 2


def test_symbols_of_trees_are_pieces(finished: Path) -> None:
    expected = "(ADJP (NP (S (VP )ADJP )NP )S )VP . DT JJ NN VBZ"
    assert list(Vocabulary(finished / "vocabulary.model").symbols) == expected.split()
