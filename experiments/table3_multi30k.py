"""Table 3 of the paper shrunk to Multi30k: the same rows around the tiny model, minutes each.

    transduce sweep experiments/table3_multi30k.py --workdir W
    transduce sweep experiments/table3_multi30k.py --workdir W --report

The base model alone: transduce train experiments/table3_multi30k.py --workdir W

Base is the model of multi30k_ende_tiny with the paper's dropout of 0.1. What a row changes is
changed in the paper's proportion where whole numbers allow: heads to 1/4, 1/2, 2 and 4 times (the
paper: 1/8, 1/2, 2, 4), keys to 1/4 and 1/2, layers to 1, 3 and 5 of 4 (2, 4 and 8 of 6), widths to
1/2 and 2 times; dropout and label smoothing are the paper's. Big is twice as wide with twice the
heads; it has base's updates and dropout, where the paper's has three times as many and 0.3. The
learning rate is the paper's formula with 1,000 updates of warm-up, which peaks at 0.0028 in base.
3,000 updates of 1,024 tokens a side are about 6 epochs. With four times the tokens and a quarter of
the updates, in as much time, most rows have not yet learnt which words belong together.

Reads multi30k/raw/{train,val,test_2016_flickr}.{en,de}.gz in data.folder ($TRANSDUCE_DATA, else
../shared/data). The report has the paper's perplexity and BLEU, of newstest2013, beside ours.

Two CPU cores, one of them for each row beside other work, 6 to 19 minutes a row: sacreBLEU
(nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0) of test, beam 4, one checkpoint: base
30.80, three layers 33.80, five 13.33, big 28.34. All rows are in RESULTS.md, with what they say.
"""

from collections.abc import Iterator

from transduce.config import (
    CorpusConfig,
    DataConfig,
    Experiment,
    ModelConfig,
    OptimizerConfig,
    TrainingConfig,
    VocabularyConfig,
)
from transduce.sweeping.variants import Variant


def _files(split: str) -> tuple[str, str]:
    return f"multi30k/raw/{split}.en.gz", f"multi30k/raw/{split}.de.gz"


def experiment() -> Experiment:
    return Experiment(
        name="table3_multi30k",
        model=ModelConfig(
            vocabulary_size=8000,
            encoder_layers=4,
            decoder_layers=4,
            d_model=128,
            d_ff=256,
            heads=4,
            d_k=32,
            d_v=32,
            dropout=0.1,
            unroll=0,
        ),
        data=DataConfig(
            corpora=(
                CorpusConfig(
                    name="multi30k_ende",
                    source_language="en",
                    target_language="de",
                    train=_files("train"),
                    dev=_files("val"),
                    test=_files("test_2016_flickr"),
                ),
            ),
            vocabulary=VocabularyConfig(size=8000),
            readers=8,
            rows=16,
            row_length=64,
        ),
        optimizer=OptimizerConfig(warmup_steps=1000),
        training=TrainingConfig(
            steps=3000, log_every=100, evaluate_every=0, save_every=500, keep=1, samples=0
        ),
    )


def _layers(count: int) -> dict[str, object]:
    return {"model.encoder_layers": count, "model.decoder_layers": count}


def _heads(count: int, width: int) -> dict[str, object]:
    return {"model.heads": count, "model.d_k": width, "model.d_v": width}


def _width(d_model: int, head: int) -> dict[str, object]:
    return {"model.d_model": d_model, "model.d_k": head, "model.d_v": head}


# Changes, and the perplexity and BLEU of the paper's row.
ROWS: dict[str, tuple[dict[str, object], float, float]] = {
    "base": ({}, 4.92, 25.8),
    "A-h1": (_heads(1, 128), 5.29, 24.9),
    "A-h2": (_heads(2, 64), 5.00, 25.5),
    "A-h8": (_heads(8, 16), 4.91, 25.8),
    "A-h16": (_heads(16, 8), 5.01, 25.4),
    "B-dk8": ({"model.d_k": 8}, 5.16, 25.1),
    "B-dk16": ({"model.d_k": 16}, 5.01, 25.4),
    "C-N1": (_layers(1), 6.11, 23.7),
    "C-N3": (_layers(3), 5.19, 25.3),
    "C-N5": (_layers(5), 4.88, 25.5),
    "C-d64": (_width(64, 16), 5.75, 24.5),
    "C-d256": (_width(256, 64), 4.66, 26.0),
    "C-dff128": ({"model.d_ff": 128}, 5.12, 25.4),
    "C-dff512": ({"model.d_ff": 512}, 4.75, 26.2),
    "D-dropout0.0": ({"model.dropout": 0.0}, 5.77, 24.6),
    "D-dropout0.2": ({"model.dropout": 0.2}, 4.95, 25.5),
    "D-smoothing0.0": ({"training.label_smoothing": 0.0}, 4.67, 25.3),
    "D-smoothing0.2": ({"training.label_smoothing": 0.2}, 5.47, 25.7),
    "E-learned": ({"model.positions": "learned", "model.learned_positions": 128}, 4.92, 25.7),
    "big": ({"model.d_model": 256, "model.d_ff": 512, "model.heads": 8}, 4.33, 26.4),
}


def sweep() -> Iterator[Variant]:
    for name, (changes, perplexity, bleu) in ROWS.items():
        paper = {"paper perplexity": f"{perplexity:.2f}", "paper BLEU": f"{bleu:.1f}"}
        yield Variant(name, changes, paper)
