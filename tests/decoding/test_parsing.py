"""A workdir of a parser: words in, trees out."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from transduce.config import CorpusConfig, DataConfig, RequestError, SearchConfig, VocabularyConfig
from transduce.evaluation.parses import parse_quality
from transduce.text.treebank import read_trees
from transduce.text.trees_as_text import Repairs, linearize, repair, symbols
from transduce.text.vocabulary import train_vocabulary

GOLD = """\
(S1 (S (NP (DT the) (NN cell)) (VP (VBZ grows)) (. .)))
(S1 (S (NP (NN man)) (VP (VBZ sees) (NP (NP (NN house)) (PP (IN of) (NP (NN dog))))) (. .)))
(S1 (NP (-LRB- -LRB-) (NN a) (-RRB- -RRB-)))
"""
SEARCH = SearchConfig(
    beam=2, block_rows=4, extra_length=14, max_source_length=28, devices=1, grammar="tree"
)


@pytest.fixture(scope="module")
def parser(tmp_path_factory, make_workdir, make_model, experiment, sentences) -> Path:
    """A workdir of a random parser; gold.trees and words beside it."""
    folder = tmp_path_factory.mktemp("parser")
    (folder / "gold.trees").write_text(GOLD)
    trees = list(read_trees(folder / "gold.trees"))
    (folder / "words").write_text("".join(f"{' '.join(tree.words())}\n" for tree in trees))
    corpus = CorpusConfig(
        name="toy",
        source_language="en",
        target_language="trees",
        builder="treebank",
        train=("gold.trees", ""),
    )
    vocabulary = VocabularyConfig(size=318)
    run = replace(
        experiment, data=DataConfig(corpora=(corpus,), vocabulary=vocabulary), search=SEARCH
    )
    model = make_model(run.model, seed=6)
    workdir = make_workdir(folder / "W", {1: model}, experiment=run)
    train_vocabulary(
        [*sentences, *(" ".join(tree.words()) for tree in trees)],
        config=vocabulary,
        path=folder / "W" / "vocabulary.model",
        symbols=symbols(map(linearize, trees)),
    )
    return workdir


def test_trees_are_over_the_words_of_their_lines_and_need_no_repair(
    parser: Path, command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """Under the grammar. The tokens stay what the model wrote; `score` gives what they have."""
    words = (parser.parent / "words").read_text().splitlines()
    source, output = tmp_path / "source", tmp_path / "output"
    source.write_text("\n".join([*words[:2], "", "( NN", "(NP -LRB- <tree:NN>"]) + "\n")
    call = ("translate", parser, "--input", source, "--format", "jsonl", "--n-best", 2)
    status, out, err = command(*call)
    assert status == 0
    assert "warning" not in err
    assert err.endswith("transduce: 0 of 5 trees repaired\n")
    records = [json.loads(line) for line in out.splitlines()]
    assert records[2]["text"] == ""
    expected = [*words[:2], "", "-LRB- NN", "-LRB-NP -LRB- <tree:NN>"]
    for record, sentence in zip(records, expected, strict=True):
        for made in (record, *record["alternatives"]) if sentence else ():
            output.write_text(made["text"])
            (tree,) = read_trees(output)
            assert " ".join(tree.words()) == sentence
            *tokens, end = made["tokens"]
            names = [token.removeprefix("<tree:").removesuffix(">") for token in tokens]
            assert end == "</s>"
            assert tokens == [f"<tree:{name}>" for name in names]
            assert repair(names, tree.words()) == (names, Repairs())
            assert names == linearize(tree)
    kept = [record for record in records if record["text"]]
    source.write_text("".join(f"{line}\n" for line in [*words[:2], "( NN", "(NP -LRB- <tree:NN>"]))
    output.write_text("".join(f"{record['text']}\n" for record in kept))
    status, out, _ = command("score", parser, "--source", source, "--target", output)
    assert status == 0
    assert [float(line) for line in out.splitlines()] == pytest.approx(
        [record["score"] for record in kept], abs=2e-4
    )


def test_outputs_that_are_no_trees_are_repaired_and_counted(
    parser: Path, command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """E3: and `brackets` reads what `translate` writes, with the figures of `evaluate`."""
    words, gold = parser.parent / "words", parser.parent / "gold.trees"
    output = tmp_path / "output"
    free = ("--search.grammar", "")
    status, _, err = command("translate", parser, "--input", words, "--output", output, *free)
    assert status == 0
    found = list(read_trees(output))
    assert [" ".join(tree.words()) for tree in found] == words.read_text().splitlines()
    warnings = [line for line in err.splitlines() if "warning" in line]
    assert warnings[0].startswith(
        "transduce: warning: line 1: hypothesis 1 is no tree over its words, and was made one: "
    )
    assert f"transduce: {len(warnings)} of 3 trees repaired: " in err

    status, out, _ = command("evaluate", parser, "--source", gold, "--reference", gold, *free)
    assert status == 0
    report = json.loads(out)
    assert report["sentences"] == 3
    assert report["repaired"] == len(warnings)
    sequences = [" ".join(linearize(tree)) for tree in found]
    sentences = words.read_text().splitlines()
    again = parse_quality(sequences, sentences, list(read_trees(gold)))
    assert (report["f1"], report["recall"]) == (again.f1, again.recall)
    status, out, _ = command("brackets", gold, output)
    assert status == 0
    assert f"Bracketing Recall         = {report['recall']:6.2f}" in out


def test_what_a_parser_cannot_be_asked_is_refused(
    parser: Path, workdir: Path, command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    words, gold = parser.parent / "words", parser.parent / "gold.trees"
    other = tmp_path / "other"
    other.write_text("the cell grows .\nman sees\n( a )\n")
    evaluate = ("evaluate", parser, "--reference", gold, "--source")
    for call, message in (
        (("translate", workdir, "--search.grammar", "tree"), "this model writes text"),
        ((*evaluate, other), "gold.trees, tree 2: is over the words"),
        ((*evaluate, words, "--reference", gold), "--reference is one file of trees to a parser"),
        (("score", parser, "--source", words, "--target", words), "words, line 1, line 1: 'the'"),
    ):
        status, out, err = command(*call)
        assert (status, out) == (2, ""), call
        assert message in err
    other.write_text("a\n")
    status, _, err = command(*evaluate, other)
    assert (status, "has 3 trees and" in err) == (2, True)


def test_a_grammar_needs_room_for_trees() -> None:
    for wrong in ({"extra_length": 1}, {"max_ratio": 0.5}, {"max_length": 9}):
        with pytest.raises(RequestError, match=r"search\.grammar needs room"):
            replace(SEARCH, **wrong)
    with pytest.raises(RequestError, match=r"search\.grammar and search\.no_repeat_ngram exclude"):
        replace(SEARCH, no_repeat_ngram=3)
