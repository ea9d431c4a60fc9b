"""WMT 2014 English to German, the paper's design with 1.0 billion parameters.

1,005,395,968 parameters: a table of 32,000 x 2,048, and 8 layers each of encoder and decoder
with d_model 2,048, d_ff 8,192 and 16 heads of width 128. A batch has 131,072 source
and as many target positions; 20,000 updates are about 20 epochs.

Not the paper's: normalisation before the sub-layers, since deep stacks with it after them are
hard to train; bfloat16; gradients clipped; a shorter warm-up to a learning rate of its own; 32,000
pieces for German, a multiple of 128. The experiment is there so that scale is real: for a model of
this size, WMT 2014 is little text.

The mesh is that of a v5e 4x4, 16 chips; on anything else, set `--mesh.fsdp`:

    transduce train experiments/scale_1b.py --workdir W

Not yet run.
"""

from transduce.config import (
    CorpusConfig,
    DataConfig,
    Experiment,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    TrainingConfig,
    VocabularyConfig,
)


def experiment() -> Experiment:
    return Experiment(
        name="scale_1b",
        model=ModelConfig(
            vocabulary_size=32000,
            encoder_layers=8,
            decoder_layers=8,
            d_model=2048,
            d_ff=8192,
            heads=16,
            d_k=128,
            d_v=128,
            dropout=0.3,
            norm="pre",
            dtype="bfloat16",
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
            vocabulary=VocabularyConfig(size=32000),
            rows=512,
        ),
        optimizer=OptimizerConfig(warmup_steps=1000, peak_learning_rate=4e-4, clip_norm=1.0),
        mesh=MeshConfig(fsdp=16),
        training=TrainingConfig(
            steps=20_000,
            remat="dots",
            evaluate_every=1000,
            evaluation_sentences=500,
            save_every=1000,
            keep=2,
        ),
    )
