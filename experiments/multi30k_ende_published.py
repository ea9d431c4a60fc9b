"""Multi30k task 1, English to German, in the setting in which Wu et al. 2021 published 41.02 BLEU.

Their text-only Transformer-Tiny on lowercased, tokenised captions: 4 + 4 layers, d_model 128, d_ff
256, 4 heads, dropout 0.3, one table for source, target and logits; peak learning rate 0.005 after
2,000 updates of warm-up, 4,096 tokens a batch, 8,000 updates, beam 5, the mean of the last ten
checkpoints. Pieces are SentencePiece's, not those of the published 10,000 merges; checkpoints are
100 updates apart, which is about an epoch.

Reads multi30k/tok/{train,val,test_2016_flickr}.lc.norm.tok.{en,de}.gz in data.folder
($TRANSDUCE_DATA, else ../shared/data).

    transduce train experiments/multi30k_ende_published.py --workdir W
    transduce translate W --average 10 --input test_2016_flickr.lc.norm.tok.en.gz --output O
    sacrebleu test_2016_flickr.lc.norm.tok.de --input O --tokenize none

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


def _files(split: str) -> tuple[str, str]:
    stem = f"multi30k/tok/{split}.lc.norm.tok"
    return f"{stem}.en.gz", f"{stem}.de.gz"


def experiment() -> Experiment:
    return Experiment(
        name="multi30k_ende_published",
        model=ModelConfig(
            vocabulary_size=9728,
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
                    name="multi30k_ende_tok",
                    source_language="en",
                    target_language="de",
                    train=_files("train"),
                    dev=_files("val"),
                    test=_files("test_2016_flickr"),
                ),
            ),
            vocabulary=VocabularyConfig(size=9728),
            readers=8,
            rows=64,
            row_length=64,
        ),
        optimizer=OptimizerConfig(warmup_steps=2000, peak_learning_rate=5e-3),
        training=TrainingConfig(
            steps=8000, log_every=50, evaluate_every=500, save_every=100, keep=10
        ),
        search=SearchConfig(beam=5, length_penalty="power", alpha=1.0),
    )
