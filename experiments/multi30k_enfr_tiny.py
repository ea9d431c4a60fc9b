"""Multi30k task 1, English to French, untokenised, by the Transformer-Tiny of Wu et al. 2021.

Reads multi30k/raw/{train,val,test_2016_flickr}.{en,fr}.gz in data.folder ($TRANSDUCE_DATA, else
../shared/data): 29,000, 1,014 and 1,000 captions.

    transduce train experiments/multi30k_enfr_tiny.py --workdir W

Not yet run.
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
    return f"multi30k/raw/{split}.en.gz", f"multi30k/raw/{split}.fr.gz"


def experiment() -> Experiment:
    return Experiment(
        name="multi30k_enfr_tiny",
        model=ModelConfig(
            vocabulary_size=8000,
            encoder_layers=4,
            decoder_layers=4,
            d_model=128,
            d_ff=256,
            heads=4,
            d_k=32,
            d_v=32,
            dropout=0.3,
            unroll=0,
        ),
        data=DataConfig(
            corpora=(
                CorpusConfig(
                    name="multi30k_enfr",
                    source_language="en",
                    target_language="fr",
                    train=_files("train"),
                    dev=_files("val"),
                    test=_files("test_2016_flickr"),
                ),
            ),
            vocabulary=VocabularyConfig(size=8000),
            readers=8,
            rows=64,
            row_length=64,
        ),
        optimizer=OptimizerConfig(warmup_steps=1000, peak_learning_rate=4e-3),
        training=TrainingConfig(
            steps=2900, log_every=50, evaluate_every=500, save_every=100, keep=10
        ),
    )
