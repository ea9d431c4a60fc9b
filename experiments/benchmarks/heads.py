"""BLEU without each attention head: what a head is for.

    python -m experiments.benchmarks.heads --workdir W --source test.en --reference test.de

As `transduce evaluate --mask-head HEAD` for each head in turn, in one process: what is compiled
serves all. Prints a table row a layer, with the BLEU that each of its heads' absence takes away,
and at its end the sacreBLEU signature. Checkpoints are chosen as by `transduce evaluate`.
"""

from dataclasses import dataclass, replace
from itertools import groupby

import tyro

from transduce import environment
from transduce.decoding import verbs
from transduce.decoding.workdir import load
from transduce.evaluation.bleu import quality
from transduce.model.heads import Head, every_head, without_heads
from transduce.text.lines import read_lines


@dataclass(kw_only=True)
class Arguments:
    """Evaluate a model without each of its heads."""

    workdir: str
    source: str
    reference: str
    average: int = 1
    best: bool = False
    lines: int | None = None
    """Only so many, from the first on."""


def main() -> None:
    asked = tyro.cli(Arguments)
    environment.prepare()
    trained = load([asked.workdir], average=asked.average, best=asked.best)
    (model,) = trained.models
    sources = list(read_lines(asked.source))[: asked.lines]
    references = list(read_lines(asked.reference))[: asked.lines]

    def bleu(heads: list[Head]) -> float:
        masked = replace(trained, models=(without_heads(model, heads),), masked=tuple(heads))
        found = quality(verbs.hypotheses(masked, masked.experiment.search, sources), [references])
        signatures.add(found.bleu_signature)
        return found.bleu

    signatures: set[str] = set()
    whole = bleu([])
    print(f"all heads: {whole:.2f}, {len(sources):,} sentences", flush=True)
    heads = range(model.config.heads)
    print("| without | " + " | ".join(f"head {head}" for head in heads) + " | all of them |")
    print("|---" * (len(heads) + 2) + "|")
    for (kind, layer), group in groupby(
        every_head(model.config), key=lambda head: (head.kind, head.layer)
    ):
        members = list(group)
        print(f"| {kind}.{layer}", end="", flush=True)
        for masked in [*([head] for head in members), members]:
            found = bleu(masked)
            print(f" | {found:.2f} ({found - whole:+.2f})", end="", flush=True)
        print(" |", flush=True)
    print(*signatures)


if __name__ == "__main__":
    main()
