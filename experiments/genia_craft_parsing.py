"""Parsing of biomedical English as in genia_parsing.py, with CRAFT as a second treebank.

Reads, besides GENIA's, craft-treebank/train.clean.trees.gz in data.folder ($TRANSDUCE_DATA, else
../shared/data): 18,951 trees of full articles. They have no outer S, and here and there other
labels and tags, so a GENIA tree is drawn twice as often; dev is GENIA's alone.

    transduce train experiments/genia_craft_parsing.py --workdir SHORT \\
        --data.row-length 64 --data.rows 16 --model.dropout 0 --training.evaluate-every 0 \\
        --optimizer.peak-learning-rate 2e-3 --training.steps 2000
    transduce train experiments/genia_craft_parsing.py --workdir W --training.warm-start SHORT
    transduce evaluate W --best --source dev.trees.gz --reference dev.trees.gz \\
        --search.grammar tree --search.beam 21

Run on 2026-12-01 for 4,000 of its updates (`--training.steps 4000`), one of two CPU cores, beside
other work: 9 minutes for SHORT and 40 minutes for W. EVALB on the first 300 sentences of dev, beam
4 without the grammar: F1 74.55, 73.46 without the outer S, one in error; genia_parsing.py after as
many updates has 74.50 and 73.30. On CRAFT's own dev (its first 300): 65.70, and 56.13 for
genia_parsing.py.
"""

from transduce.config import (
    CorpusConfig,
    DataConfig,
    Experiment,
    ModelConfig,
    OptimizerConfig,
    SearchConfig,
    TrainingConfig,
    VocabularyConfig,
)


def experiment() -> Experiment:
    return Experiment(
        name="genia_craft_parsing",
        model=ModelConfig(
            vocabulary_size=3000,
            encoder_layers=4,
            decoder_layers=4,
            d_model=192,
            d_ff=512,
            heads=4,
            d_k=48,
            d_v=48,
            dropout=0.1,
            unroll=0,
        ),
        data=DataConfig(
            corpora=(
                CorpusConfig(
                    name="genia",
                    source_language="en",
                    target_language="trees",
                    builder="treebank",
                    train=("genia-treebank/train.trees.gz", ""),
                    dev=("genia-treebank/dev.trees.gz", ""),
                    weight=2.0,
                ),
                CorpusConfig(
                    name="craft",
                    source_language="en",
                    target_language="trees",
                    builder="treebank",
                    train=("craft-treebank/train.clean.trees.gz", ""),
                ),
            ),
            vocabulary=VocabularyConfig(size=3000),
            readers=8,
            rows=8,
            row_length=256,
        ),
        optimizer=OptimizerConfig(warmup_steps=600, peak_learning_rate=1.5e-3),
        training=TrainingConfig(
            steps=15_000,
            minutes=170,
            watch="f1",
            guided_attention=0.5,
            ema_decay=0.999,
            log_every=50,
            evaluate_every=1000,
            evaluation_sentences=300,
            save_every=100,
            keep=5,
        ),
        search=SearchConfig(alpha=0.3, extra_length=300),
    )
