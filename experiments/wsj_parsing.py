"""Constituency parsing of English, the WSJ-only setting of section 6.3 of the paper (Table 4).

Reads LDC99T42 in data.folder ($TRANSDUCE_DATA, else ../shared/data), the LDC's Treebank-3 as it
comes: sections 02 to 21 of the Wall Street Journal to learn from, about 40,000 sentences, 22 to
choose by, and 23 to report on. Words are given, tags are not.

    transduce train experiments/wsj_parsing.py --workdir W
    transduce evaluate W --best --source 23.trees --reference 23.trees

From the paper: 4 layers, d_model 1024, a vocabulary of 16,000, outputs of up to 300 symbols more
than the input has pieces, beam 21, alpha 0.3, and all else as in the base model of translation;
so 8 heads, which then are 128 wide. It says that dropout and learning rate were chosen on section
22, but not what they are: the dropout of 0.2 and the warm-up are those of transformer_parsing_base
in the authors' tensor2tensor, which puts the same dropout on attention weights too. Its table is
not shared between source and target; here it is, as in section 3.4. The paper reports F1 91.3.

Not yet run.
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

FOLDER = "LDC99T42"


def experiment() -> Experiment:
    return Experiment(
        name="wsj_parsing",
        model=ModelConfig(
            vocabulary_size=16_000,
            encoder_layers=4,
            decoder_layers=4,
            d_model=1024,
            d_ff=2048,
            heads=8,
            d_k=128,
            d_v=128,
            dropout=0.2,
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
                ),
            ),
            vocabulary=VocabularyConfig(size=16_000),
            rows=48,
            row_length=512,
        ),
        optimizer=OptimizerConfig(warmup_steps=16_000),
        training=TrainingConfig(steps=100_000, watch="f1"),
        search=SearchConfig(beam=21, alpha=0.3, extra_length=300),
    )
