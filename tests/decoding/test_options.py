"""What the options of translate do: prefixes, lengths, bans, several hypotheses, drawing."""

import random
from collections import Counter
from pathlib import Path

import pytest

from transduce.decoding.scoring import score_pairs
from transduce.text.vocabulary import Vocabulary

from .files import lines_of, records, warnings, write


@pytest.fixture
def written(command, workdir: Path, tmp_path: Path):
    """What is known of each of some lines, as `translate` writes it."""

    def call(lines: list[str], *options: object) -> list[dict]:
        path = write(tmp_path / "lines", lines)
        asked = ["--input", path, "--format", "jsonl", *options]
        status, out, _ = command("translate", workdir, *asked)
        assert status == 0
        return records(out)

    return call


def pieces(record: dict) -> int:
    """Without the end of sentence."""
    assert record["tokens"][-1] == "</s>"
    return record["length"] - 1


# One beam, so that these share what is compiled.
GREEDY = ["--search.beam", 1]


def test_an_output_begins_with_its_prefix(
    written, short: list[str], tmp_path: Path, vocabulary: Vocabulary, model
) -> None:
    """D9: with its pieces, whose log-probabilities count; an empty one leaves the output free."""
    texts = ["the man", "", "runs é ", " dog", "house", ""]
    lines = short[:6]
    prefix = ["--prefix", write(tmp_path / "prefix", texts)]
    found = written(lines, *GREEDY, *prefix)
    assert written(lines, *GREEDY, *prefix, "--batch-size", 1) == found
    free = written(lines, *GREEDY, "--prefix", write(tmp_path / "prefix", [""] * 6))
    for text, record, other in zip(texts, found, free, strict=True):
        begin = list(vocabulary.names(vocabulary.encode(text)[:-1]))
        assert record["tokens"][: len(begin)] == begin
        assert (record == other) == (not begin)
        assert record["text"].startswith(text)
    ids = [[vocabulary.id_of(token) for token in record["tokens"]] for record in found]
    scores = score_pairs(
        [model], zip(vocabulary.encode_many(lines), ids, strict=True), block_rows=4
    )
    assert [record["score"] for record in found] == pytest.approx(list(scores), abs=1e-4)


def test_a_prefix_may_be_longer_than_an_output(
    written, tmp_path: Path, short: list[str], vocabulary: Vocabulary
) -> None:
    """Then it is all of it; a source of n pieces has an output of at most n + 6."""
    line = min(short, key=lambda line: len(vocabulary.encode(line)))
    assert len(vocabulary.encode(line)) + 5 < 25
    prefix = write(tmp_path / "prefix", [" ".join(["man"] * 25), "the"])
    long, other = written([line, line], *GREEDY, "--prefix", prefix)
    assert long["tokens"] == [*["▁man"] * 25, "</s>"]
    assert other["tokens"][0] == "▁the"


def test_a_blank_line_says_that_its_prefix_is_left_out(
    command, workdir: Path, tmp_path: Path
) -> None:
    source, prefix = write(tmp_path / "source", ["", " "]), write(tmp_path / "prefix", ["the", ""])
    options = ["--input", source, "--prefix", prefix]
    status, out, err = command("translate", workdir, *options)
    assert (status, out) == (0, "\n\n")
    assert warnings(err, count="2 lines") == [
        "transduce: warning: line 1: blank source: its prefix is left out"
    ]


def test_the_shortest_length_is_absolute_or_of_the_source(
    written, short: list[str], vocabulary: Vocabulary
) -> None:
    """It overrides the workdir's own search; no output may be so short without it."""
    free = written(short)
    sources = [len(vocabulary.encode(line)) - 1 for line in short]
    assert sum(pieces(record) < 6 for record in free) > 3
    assert min(map(pieces, written(short, "--search.min-length", 6))) == 6
    ratios = [pieces(record) / source for record, source in zip(free, sources, strict=True)]
    assert sum(ratio < 1.1 for ratio in ratios) > 3
    for record, source in zip(written(short, "--search.min-ratio", 1.1), sources, strict=True):
        assert pieces(record) >= 1.1 * source


def test_the_greatest_length_is_absolute_and_of_the_source(
    written, short: list[str], vocabulary: Vocabulary
) -> None:
    """int(0.5 n) + 1 pieces for a source of n, but at most 4."""
    options = ["--search.max-ratio", 0.5, "--search.extra-length", 1, "--search.max-length", 4]
    limits = [min((len(vocabulary.encode(line)) - 1) // 2 + 1, 4) for line in short]
    made = list(map(pieces, written(short, *options)))
    assert all(length <= limit for length, limit in zip(made, limits, strict=True))
    reached = {limit for length, limit in zip(made, limits, strict=True) if length == limit}
    assert reached >= {2, 3, 4}


def test_a_banned_piece_is_never_written(written, short: list[str]) -> None:
    counts = Counter(token for record in written(short) for token in record["tokens"])
    del counts["</s>"]
    banned = [token for token, _ in counts.most_common(2)]
    found = written(short, "--search.ban", *banned)
    assert not any(set(record["tokens"]) & set(banned) for record in found)


def test_several_hypotheses_are_different_and_best_first(
    command, written, workdir: Path, tmp_path: Path, short: list[str]
) -> None:
    """D6: as many as the beam is wide; in text as Moses writes them, numbered from 0."""
    found = written(short, "--n-best", 3)
    for record in found:
        hypotheses = [record, *record["alternatives"]]
        assert len({tuple(one["tokens"]) for one in hypotheses}) == 3
        scores = [one["penalized_score"] for one in hypotheses]
        assert scores == sorted(scores, reverse=True)
    options = ["--input", write(tmp_path / "source", short), "--n-best", 3]
    status, out, _ = command("translate", workdir, *options)
    assert status == 0
    expected = [
        f"{number} ||| {one['text']} ||| {one['score']:.6f} ||| {one['penalized_score']:.6f}"
        for number, record in enumerate(found)
        for one in [record, *record["alternatives"]]
    ]
    assert lines_of(out) == expected


DRAW = ["--search.temperature", 1.0, "--n-best", 2]


def test_what_is_drawn_depends_on_the_seed_and_the_line_alone(written, short: list[str]) -> None:
    """Not on batches, nor on other lines; a line's number seeds it too."""
    found = written(short, *DRAW)
    assert written(short, *DRAW) == found
    for size in (1, 7):
        assert written(short, *DRAW, "--batch-size", size) == found
    others = short[1::2]
    random.Random(1).shuffle(others)
    mixed = [others[place // 2] if place % 2 else line for place, line in enumerate(short)]
    again = written(mixed, *DRAW)
    assert again[::2] == found[::2]
    assert again != found
    same = written([short[0]] * 5, *DRAW)
    drawn = {tuple(one["tokens"]) for record in same for one in [record, *record["alternatives"]]}
    assert len(drawn) > 5


def test_scores_of_what_is_drawn_are_those_of_forced_scoring(
    written, short: list[str], vocabulary: Vocabulary, model
) -> None:
    """D3."""
    drawn = [
        (vocabulary.encode(line), one)
        for line, record in zip(short, written(short, *DRAW), strict=True)
        for one in [record, *record["alternatives"]]
    ]
    ids = [[vocabulary.id_of(token) for token in one["tokens"]] for _, one in drawn]
    pairs = [(source, target) for (source, _), target in zip(drawn, ids, strict=True)]
    scores = list(score_pairs([model], pairs, block_rows=4))
    assert [one["score"] for _, one in drawn] == pytest.approx(scores, abs=1e-4)
