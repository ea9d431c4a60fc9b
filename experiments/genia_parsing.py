"""Constituency parsing of biomedical English (section 6.3 of the paper), on the GENIA treebank.

Reads genia-treebank/{train,dev}.trees.gz in data.folder ($TRANSDUCE_DATA, else ../shared/data):
14,326 and 1,361 trees, McClosky's division. Words are given, tags are not.

    transduce train experiments/genia_parsing.py --workdir SHORT \\
        --data.row-length 64 --data.rows 16 --model.dropout 0 --training.evaluate-every 0 \\
        --optimizer.peak-learning-rate 2e-3 --training.steps 2000
    transduce train experiments/genia_parsing.py --workdir W --training.warm-start SHORT
    transduce evaluate W --best --source dev.trees.gz --reference dev.trees.gz \\
        --search.grammar tree --search.beam 21

A third of the paper's smaller setting in trees, for two CPU cores and three hours, hence a model
of width 192. What takes such a model longest is to find out that each tag belongs to the next word.
It learns that first, from trees of up to 63 symbols and without dropout, and is told where to look
(training.guided_attention); then all trees follow, from where it is. Batches are small, since that
takes updates rather than tokens. 3,000 pieces leave few words of the training text whole that are
too rare to be learnt. Rows of 256 leave out ten trees. Outputs may have 300 symbols more than the
input has pieces, as in the paper; the longest of dev has 206 more than words. While training, F1 is
of 300 dev sentences by beam 4; the command above gives that of all, with the paper's beam.

Run on 2026-11-30, one of two CPU cores, beside other work: 7 minutes for SHORT and 177 minutes for
W, 12,644 updates (alone on a core they would take about 100). EVALB on dev, all 1,361 sentences, by
the last command: F1 84.99, 84.28 without the outer S, two in error. Without the grammar, beam 4:
82.59 and 81.77, six in error, 209 repaired. Curves are in RESULTS.md.
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
        name="genia_parsing",
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
