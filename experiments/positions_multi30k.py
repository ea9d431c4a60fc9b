"""Sinusoidal, learned and rotary positions on sentences longer than those trained on, Multi30k.

    transduce sweep experiments/positions_multi30k.py --workdir W
    transduce sweep experiments/positions_multi30k.py --workdir W --report
    python -m experiments.benchmarks.by_length W/sinusoidal W/learned W/rotary

One of them alone: transduce train experiments/positions_multi30k.py --workdir W

Section 3.5: sinusoids "may allow the model to extrapolate to sequence lengths longer than the ones
encountered during training". Here a row has 16 tokens on either side, so that training sees 16,413
of the 29,000 pairs and no position beyond the 16th; dev and test are translated whole. The second
script adds what was too long for training to test, and gives BLEU and perplexity by length. Learned
positions have 128 rows, of which all but 16 stay as they were initialised.

Reads multi30k/raw/{train,val,test_2016_flickr}.{en,de}.gz in data.folder ($TRANSDUCE_DATA, else
../shared/data).

Two CPU cores, one of them for each variant beside other work, 11 minutes (25 for the first, which
shared it): sacreBLEU (nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0) of the whole test
set, beam 4, sinusoidal 29.92, learned 29.31, rotary 31.68. RESULTS.md has them by length.
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
        name="positions_multi30k",
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
            learned_positions=128,
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
            rows=64,
            row_length=16,
        ),
        optimizer=OptimizerConfig(warmup_steps=1000),
        training=TrainingConfig(
            steps=4000, log_every=100, evaluate_every=0, save_every=500, keep=1, samples=0
        ),
    )


def sweep() -> Iterator[Variant]:
    for kind in ("sinusoidal", "learned", "rotary"):
        yield Variant(kind, {"model.positions": kind})
