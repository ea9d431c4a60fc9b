"""Table 3 of the paper, every row: variations on the Transformer, WMT 2014 English to German.

    transduce sweep experiments/table3_wmt14.py --workdir W
    transduce sweep experiments/table3_wmt14.py --workdir W --submit 'sbatch launch/slurm.sbatch'
    transduce sweep experiments/table3_wmt14.py --workdir W --report

The base model alone: transduce train experiments/table3_wmt14.py --workdir W

As in the paper, perplexity (per piece) and BLEU are those of dev, newstest2013, by beam search with
beam 4 and alpha 0.6 and without averaging checkpoints (section 6.2). The report has the paper's
figures beside ours. Parameters differ because the vocabulary does: with 41,100 rows in the table
instead of 37,000, every count that the paper gives comes out but that of big, which would be 218
million then.

Not yet run.
"""

from collections.abc import Iterator

from transduce.config import (
    CorpusConfig,
    DataConfig,
    Experiment,
    ModelConfig,
    TrainingConfig,
    VocabularyConfig,
)
from transduce.sweeping.variants import Variant


def experiment() -> Experiment:
    return Experiment(
        name="table3_wmt14",
        model=ModelConfig(
            vocabulary_size=37000,
            unroll=0,
        ),
        data=DataConfig(
            corpora=(
                CorpusConfig(
                    name="wmt14_ende",
                    source_language="en",
                    target_language="de",
                    builder="wmt14",
                    path="wmt14",
                ),
            ),
            vocabulary=VocabularyConfig(size=37000),
            rows=96,
        ),
        training=TrainingConfig(
            steps=100_000, evaluate_every=3000, save_every=1500, keep=5, loss_chunks=16
        ),
    )


def _layers(count: int) -> dict[str, object]:
    return {"model.encoder_layers": count, "model.decoder_layers": count}


def _heads(count: int, width: int) -> dict[str, object]:
    return {"model.heads": count, "model.d_k": width, "model.d_v": width}


def _width(d_model: int, head: int) -> dict[str, object]:
    return {"model.d_model": d_model, "model.d_k": head, "model.d_v": head}


BIG = {
    "model.d_model": 1024,
    "model.d_ff": 4096,
    "model.heads": 16,
    "model.dropout": 0.3,
    "training.steps": 300_000,
    "training.evaluate_every": 6000,
    "training.save_every": 600,
    "training.keep": 20,
}

# Changes, and the paper's perplexity, BLEU and millions of parameters; 0: it gives none.
ROWS: dict[str, tuple[dict[str, object], float, float, int]] = {
    "base": ({}, 4.92, 25.8, 65),
    "A-h1": (_heads(1, 512), 5.29, 24.9, 0),
    "A-h4": (_heads(4, 128), 5.00, 25.5, 0),
    "A-h16": (_heads(16, 32), 4.91, 25.8, 0),
    "A-h32": (_heads(32, 16), 5.01, 25.4, 0),
    "B-dk16": ({"model.d_k": 16}, 5.16, 25.1, 58),
    "B-dk32": ({"model.d_k": 32}, 5.01, 25.4, 60),
    "C-N2": (_layers(2), 6.11, 23.7, 36),
    "C-N4": (_layers(4), 5.19, 25.3, 50),
    "C-N8": (_layers(8), 4.88, 25.5, 80),
    "C-d256": (_width(256, 32), 5.75, 24.5, 28),
    "C-d1024": (_width(1024, 128), 4.66, 26.0, 168),
    "C-dff1024": ({"model.d_ff": 1024}, 5.12, 25.4, 53),
    "C-dff4096": ({"model.d_ff": 4096}, 4.75, 26.2, 90),
    "D-dropout0.0": ({"model.dropout": 0.0}, 5.77, 24.6, 0),
    "D-dropout0.2": ({"model.dropout": 0.2}, 4.95, 25.5, 0),
    "D-smoothing0.0": ({"training.label_smoothing": 0.0}, 4.67, 25.3, 0),
    "D-smoothing0.2": ({"training.label_smoothing": 0.2}, 5.47, 25.7, 0),
    "E-learned": ({"model.positions": "learned"}, 4.92, 25.7, 0),
    "big": (BIG, 4.33, 26.4, 213),
}


def sweep() -> Iterator[Variant]:
    for name, (changes, perplexity, bleu, millions) in ROWS.items():
        paper: dict[str, float | str] = {
            "paper perplexity": f"{perplexity:.2f}",
            "paper BLEU": f"{bleu:.1f}",
        }
        if millions:
            paper["paper parameters, millions"] = millions
        yield Variant(name, changes, paper)
