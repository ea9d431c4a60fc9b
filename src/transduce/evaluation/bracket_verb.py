"""What `brackets` does: EVALB's table and summary."""

import sys

from transduce.config import RequestError
from transduce.evaluation.bracket_parameters import PENN_TREEBANK, read_parameters
from transduce.evaluation.brackets import SentenceScore, Status, Totals, percent, score, total
from transduce.evaluation.parses import without_outer_s
from transduce.text.lines import read_lines
from transduce.text.treebank import clean, parse_trees

RULE = "=" * 76
HEAD = f"""\
  Sent.                        Matched  Bracket   Cross        Correct Tag
 ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy
{RULE}"""
"""EVALB's own spelling, for the programs that read its table."""


def brackets(gold: str, test: str, parameters: str | None = None, *, outer_s: bool = True) -> None:
    """Writes EVALB's table and summary of two files with a tree a line; errors to stderr.

    `parameters` is a parameter file; without it they are those of `PENN_TREEBANK`. Without
    `outer_s`, trees are compared after `without_outer_s`, gold and test alike. Raises
    `RequestError` when a file cannot be read or is empty, the files differ in length, and, after
    the rows before it, at the first sentence in error beyond what MAX_ERROR lets pass.
    """
    asked = read_parameters(parameters) if parameters is not None else PENN_TREEBANK
    wanted, found = list(read_lines(gold)), list(read_lines(test))
    if len(wanted) != len(found):
        raise RequestError(
            f"{test} has {len(found)} lines and {gold} has {len(wanted)}: "
            "a tree is a line, and each gold tree needs its test tree, an empty line where there "
            "is none"
        )
    if not wanted:
        raise RequestError(f"{gold} is empty: there must be at least one tree to score")
    if not outer_s:
        wanted, found = map(_without_outer_s, wanted), map(_without_outer_s, found)
    print(HEAD)
    scores: list[SentenceScore] = []
    errors = 0
    for number, (one, other) in enumerate(zip(wanted, found, strict=True), start=1):
        scores.append(score(one, other, asked))
        if scores[-1].status is Status.ERROR:
            errors += 1
            if errors > asked.max_error + 1:
                raise RequestError(
                    f"{test}, line {number}: {scores[-1].error}; with {errors} sentences in error "
                    f"there are no totals: MAX_ERROR {asked.max_error} lets {errors - 1} pass"
                )
            print(f"{number} : {scores[-1].error}", file=sys.stderr)
        print(row(number, scores[-1]))
    print(RULE)
    short = [one for one in scores if one.length <= asked.cutoff_length]
    print(total_row(total(scores)))
    print("=== Summary ===")
    print(summary("All", total(scores)))
    print(summary(f"len<={asked.cutoff_length}", total(short)))


def _without_outer_s(line: str) -> str:
    """A line that is no tree stays, for the measure to say what is wrong with it."""
    try:
        trees = [clean(tree) for tree in parse_trees([line], name="")]
    except RequestError:
        return line
    return str(without_outer_s(trees[0])) if len(trees) == 1 else line


def row(number: int, score: SentenceScore) -> str:
    """The table's row of the sentence on line `number`."""
    return (
        f"{number:4d}  {score.length:3d}    {score.status:d}  "
        f"{percent(score.matched, score.gold):6.2f} {percent(score.matched, score.test):6.2f}   "
        f"{score.matched:3d}    {score.gold:3d}  {score.test:3d}    {score.crossing:3d}   "
        f"{score.words:4d}  {score.tags:4d}   {percent(score.tags, score.words):6.2f}"
    )


def total_row(totals: Totals) -> str:
    """The table's last row; EVALB leaves out its left part where either side has no brackets."""
    brackets = (
        f"{'':16}{totals.recall:6.2f} {totals.precision:6.2f} {totals.matched:6d} "
        f"{totals.gold:5d} {totals.test:5d}  {totals.crossing:5d}"
    )
    words = f"  {totals.words:5d} {totals.tags:5d}   {percent(totals.tags, totals.words):6.2f}"
    return (brackets if totals.gold and totals.test else "") + words


def summary(name: str, totals: Totals) -> str:
    """A section of the summary, with an empty line before it."""
    valid = totals.valid
    lines = [
        f"Number of sentence        = {totals.sentences:6d}",
        f"Number of Error sentence  = {totals.errors:6d}",
        f"Number of Skip  sentence  = {totals.skipped:6d}",
        f"Number of Valid sentence  = {valid:6d}",
        f"Bracketing Recall         = {totals.recall:6.2f}",
        f"Bracketing Precision      = {totals.precision:6.2f}",
        f"Bracketing FMeasure       = {totals.f_measure:6.2f}",
        f"Complete match            = {percent(totals.complete, valid):6.2f}",
        f"Average crossing          = {totals.crossing / valid if valid else 0:6.2f}",
        f"No crossing               = {percent(totals.no_crossing, valid):6.2f}",
        f"2 or less crossing        = {percent(totals.two_or_less, valid):6.2f}",
        f"Tagging accuracy          = {percent(totals.tags, totals.words):6.2f}",
    ]
    return "\n".join(["", f"-- {name} --", *lines])
