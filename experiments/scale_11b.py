"""WMT 2014 English to German, the paper's design with 11.4 billion parameters.

11,407,343,616 parameters: a table of 32,000 x 4,096, and 24 layers each of encoder and decoder
with d_model 4,096, d_ff 16,384 and 32 heads of width 128. A batch has 1,048,576 source
and as many target positions; 2,500 updates are about 20 epochs.

Not the paper's: normalisation before the sub-layers, since deep stacks with it after them are
hard to train; bfloat16; gradients clipped; a shorter warm-up to a learning rate of its own; 32,000
pieces for German, a multiple of 128. The experiment is there so that scale is real: for a model of
this size, WMT 2014 is little text.

The mesh is that of a v5p 8x8x8, 512 chips; on anything else, set `--mesh.fsdp`:

    transduce train experiments/scale_11b.py --workdir W

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
        name="scale_11b",
        model=ModelConfig(
            vocabulary_size=32000,
            encoder_layers=24,
            decoder_layers=24,
            d_model=4096,
            d_ff=16384,
            heads=32,
            d_k=128,
            d_v=128,
            dropout=0.3,
            norm="pre",
            dtype="bfloat16",
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
            vocabulary=VocabularyConfig(size=32000),
            readers=128,
            rows=4096,
        ),
        optimizer=OptimizerConfig(warmup_steps=1000, peak_learning_rate=2e-4, clip_norm=1.0),
        mesh=MeshConfig(fsdp=64),
        training=TrainingConfig(
            steps=2500,
            evaluate_every=250,
            evaluation_sentences=500,
            save_every=250,
            keep=2,
        ),
    )
