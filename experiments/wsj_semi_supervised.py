"""Constituency parsing of English, the semi-supervised setting of section 6.3 (Table 4).

Reads, in data.folder ($TRANSDUCE_DATA, else ../shared/data), LDC99T42 as wsj_parsing.py does, and
machine-parsed/train.trees.gz: trees that other parsers gave for about 17 million sentences, which
are not published. Any trees with the Penn Treebank's labels will do.

    transduce train experiments/wsj_semi_supervised.py --workdir W
    transduce evaluate W --best --source 23.trees --reference 23.trees

As wsj_parsing.py but for the vocabulary of 32,000, which the paper has, and the dropout of 0.1 and
the warm-up, which are those of transformer_parsing_big in the authors' tensor2tensor. The paper
does not say how gold and machine-parsed trees were mixed: here a gold one is drawn ten times as
often as another, so that one in about 45 is gold. The paper reports F1 92.7.

Not yet run.
"""

from transduce.config import (
    CorpusConfig,
    DataConfig,
    Experiment,
    ModelConfig,
    SearchConfig,
    TrainingConfig,
    VocabularyConfig,
)

FOLDER = "LDC99T42"


def experiment() -> Experiment:
    return Experiment(
        name="wsj_semi_supervised",
        model=ModelConfig(
            vocabulary_size=32_000,
            encoder_layers=4,
            decoder_layers=4,
            d_model=1024,
            d_ff=2048,
            heads=8,
            d_k=128,
            d_v=128,
        ),
        data=DataConfig(
            corpora=(
                CorpusConfig(
                    name="wsj",
                    source_language="en",
                    target_language="trees",
                    builder="treebank",
                    train=(FOLDER, "02-21"),
                    dev=(FOLDER, "22"),
                    test=(FOLDER, "23"),
                    weight=10.0,
                ),
                CorpusConfig(
                    name="machine_parsed",
                    source_language="en",
                    target_language="trees",
                    builder="treebank",
                    train=("machine-parsed/train.trees.gz", ""),
                ),
            ),
            vocabulary=VocabularyConfig(size=32_000),
            rows=48,
            row_length=512,
        ),
        training=TrainingConfig(steps=100_000, watch="f1"),
        search=SearchConfig(beam=21, alpha=0.3, extra_length=300),
    )
