"""An experiment file with a sweep, and workdirs as runs of its variants would leave them."""

import json
from pathlib import Path
from typing import Any

from transduce.sweeping.variants import Planned, plan
from transduce.workdir import Workdir

FILE = """
from transduce.config import (
    CorpusConfig, DataConfig, Experiment, ModelConfig, TrainingConfig, VocabularyConfig
)
from transduce.sweeping.variants import Variant


def experiment():
    return Experiment(
        name="small",
        model=ModelConfig(
            vocabulary_size=300, encoder_layers=1, decoder_layers=1, d_model=32, d_ff=32,
            heads=2, d_k=8, d_v=8,
        ),
        data=DataConfig(
            corpora=(
                CorpusConfig(
                    name="small", source_language="en", target_language="de",
                    train=("train.en", "train.de"),
                    dev=("dev.en", "dev.de"), test=("dev.en", "dev.de"),
                ),
            ),
            vocabulary=VocabularyConfig(size=296), readers=2, rows=8, row_length=32,
        ),
        training=TrainingConfig(steps=20, evaluate_every=0, save_every=10),
    )


def sweep():
    yield Variant("base", {}, {"paper BLEU": 25.8})
    yield Variant("A-h1", {"model.heads": 1, "model.d_k": 16}, {"paper BLEU": 24.9})
    yield Variant("D-dropout0", {"model.dropout": 0})
"""

DEV = [
    "die rote Lampe ist alt .",
    "die alte Tür ist neu .",
    "das kleine Haus hat eine rote Tür .",
    "die Katze schläft in der Straße .",
]
"""The targets of dev and of test."""


def write_file(folder: Path, text: str = FILE) -> str:
    path = folder / "small.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def write_corpus(folder: Path) -> None:
    for split in ("train", "dev"):
        (folder / f"{split}.de").write_text("".join(f"{line}\n" for line in DEV))
        (folder / f"{split}.en").write_text("".join(f"line {n}\n" for n, _ in enumerate(DEV)))


def variants(folder: Path) -> list[Planned]:
    return plan(write_file(folder))


def leave(
    variant: Planned,
    folder: Path,
    *,
    step: int,
    over: bool = True,
    translations: list[str] | None = None,
    perplexity: float = 5.0,
) -> Workdir:
    """A workdir after `step` updates, where the run ended or was cut."""
    workdir = Workdir.of(str(folder / variant.name))
    with workdir.begin(variant.experiment):
        corpora = {f"small/{split}": "0" for split in ("train", "dev", "test")}
        workdir.settle(variant.experiment, corpora=corpora, vocabulary="0")
    (workdir.checkpoints / str(step)).mkdir(parents=True)
    records: list[dict[str, Any]] = [{"kind": "train", "step": step, "loss": 1.0}]
    if over:
        measured = {"step": step, "loss": 2.0, "perplexity": perplexity, "bleu": 1.0}
        records.append({"kind": "dev", **measured})
        records.append({"kind": "test", **measured})
        records.append({"kind": "end", "step": step, "seconds": 90.0})
        records.append({"kind": "over", "step": step, "by": "a limit"})
    workdir.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    for split in ("dev", "test"):
        path = workdir.translations(split, step)
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in translations or DEV))
    return workdir
