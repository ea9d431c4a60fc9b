"""WMT 2014 English to German, the paper's big model (sections 5 and 6, Tables 2 and 3).

About 25,000 source and 25,000 target tokens a batch; 300,000 updates; 20 checkpoints, about
ten minutes apart on the paper's eight P100s, are kept to be averaged:

    transduce train experiments/wmt14_ende_big.py --workdir W
    transduce evaluate W --average 20 --source newstest2014.en --reference newstest2014.de

Reads wmt14/{train,newstest2013,newstest2014}.{en,de}.gz in data.folder.

Not yet run.
"""

from transduce.config import (
    CorpusConfig,
    DataConfig,
    Experiment,
    ModelConfig,
    TrainingConfig,
    VocabularyConfig,
)


def _files(split: str) -> tuple[str, str]:
    return f"wmt14/{split}.en.gz", f"wmt14/{split}.de.gz"


def experiment() -> Experiment:
    return Experiment(
        name="wmt14_ende_big",
        model=ModelConfig(
            vocabulary_size=37000,
            d_model=1024,
            d_ff=4096,
            heads=16,
            dropout=0.3,
        ),
        data=DataConfig(
            corpora=(
                CorpusConfig(
                    name="wmt14_ende",
                    source_language="en",
                    target_language="de",
                    train=_files("train"),
                    dev=_files("newstest2013"),
                    test=_files("newstest2014"),
                ),
            ),
            vocabulary=VocabularyConfig(size=37000),
            rows=96,
        ),
        training=TrainingConfig(steps=300_000, evaluate_every=6000, save_every=600, keep=20),
    )
