"""WMT 2014 English to German, the paper's base model (sections 5 and 6, Tables 2 and 3).

About 25,000 source and 25,000 target tokens a batch; 100,000 updates; 5 checkpoints, about
ten minutes apart on the paper's eight P100s, are kept to be averaged:

    transduce train experiments/wmt14_ende_base.py --workdir W
    transduce evaluate W --average 5 --source newstest2014.en --reference newstest2014.de

Downloads 1.7 GB of archives unless they lie in data.folder/wmt14; those in the cache may be deleted
once the corpus is prepared. `sacrebleu -t wmt14/full -l en-de --echo src` gives newstest2014.en.

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


def experiment() -> Experiment:
    return Experiment(
        name="wmt14_ende_base",
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
