"""Multi30k task 1, English to German, untokenised, by the Transformer-Tiny of Wu et al. 2021.

Reads multi30k/raw/{train,val,test_2016_flickr}.{en,de}.gz in data.folder ($TRANSDUCE_DATA, else
../shared/data): 29,000, 1,014 and 1,000 captions.

    transduce train experiments/multi30k_ende_tiny.py --workdir W

Run on 2026-11-30, two cores with AVX512 (no accelerator), 24 GiB: about 9,400 real target tokens a
second in fp32. sacreBLEU on the raw, cased test_2016_flickr, beam 4,
nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0: 35.13 after 2,600 updates (19 minutes);
the run went on to 2,900 (21.5 minutes in all): 35.60, and 36.26 with the last ten checkpoints
averaged. Another run, cut four times, came to 4,137 updates in 56 minutes with other work beside
it: 37.19, and 37.97 averaged. The curves are in RESULTS.md.
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
    return f"multi30k/raw/{split}.en.gz", f"multi30k/raw/{split}.de.gz"


def experiment() -> Experiment:
    return Experiment(
        name="multi30k_ende_tiny",
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
            row_length=64,
        ),
        optimizer=OptimizerConfig(warmup_steps=1000, peak_learning_rate=4e-3),
        training=TrainingConfig(
            steps=2600, log_every=50, evaluate_every=500, save_every=100, keep=10
        ),
    )
