"""Tatoeba, English to German: short everyday sentences, by a small model.

Reads tatoeba-en-de/{train,dev}.{en,de}.gz in data.folder ($TRANSDUCE_DATA, else
../shared/data): 153,119 and 2,427 sentences.

    transduce train experiments/tatoeba_ende_small.py --workdir W

Run on 2026-11-30 with --training.steps 20000 --training.minutes 55, two cores with AVX512 and other
work beside it: 2,037 updates in 55 minutes, dev BLEU 37.08 (sacreBLEU,
nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0), still rising; the curve is in
RESULTS.md.
"""

from transduce.config import (
    CorpusConfig,
    DataConfig,
    Experiment,
    ModelConfig,
    OptimizerConfig,
    TrainingConfig,
    VocabularyConfig,
)


def _files(split: str) -> tuple[str, str]:
    return f"tatoeba-en-de/{split}.en.gz", f"tatoeba-en-de/{split}.de.gz"


def experiment() -> Experiment:
    return Experiment(
        name="tatoeba_ende_small",
        model=ModelConfig(
            vocabulary_size=8000,
            encoder_layers=4,
            decoder_layers=4,
            d_model=256,
            d_ff=1024,
            heads=4,
            unroll=0,
        ),
        data=DataConfig(
            corpora=(
                CorpusConfig(
                    name="tatoeba_ende",
                    source_language="en",
                    target_language="de",
                    train=_files("train"),
                    dev=_files("dev"),
                ),
            ),
            vocabulary=VocabularyConfig(size=8000),
            readers=8,
            rows=64,
            row_length=64,
        ),
        optimizer=OptimizerConfig(warmup_steps=1000, peak_learning_rate=2e-3),
        training=TrainingConfig(
            steps=3500, log_every=50, evaluate_every=500, save_every=100, keep=10
        ),
    )
