"""Whole documents, English to German: source and target of up to 16,384 pieces.

209,051,648 parameters: the paper's big model (Table 3), but 8 heads of width 128 for 16 of 64, and
32,000 pieces. A batch has 16 rows of 16,384 positions on either side, packed with documents that
do not see each other. The scores of one attention sub-layer of one row would take 8 GiB in
float32: the run needs a mesh over whose `context` axis a row is divided. Attention then goes round
a ring of devices and never makes them all. It is three quarters of the work, so nothing is
rematerialised: what a chip keeps for the backward pass, of 16,384 positions, fits beside the
model in a v5p's memory.

Documents lie in data.folder/documents, one a line, gzip. The mesh is that of a v5p 2x2x4, 16
chips; on anything else, set `--mesh.context`:

    transduce train experiments/long_document.py --workdir W

Not yet run.
"""

from transduce.config import (
    CorpusConfig,
    DataConfig,
    Experiment,
    MeshConfig,
    ModelConfig,
    SearchConfig,
    TrainingConfig,
    VocabularyConfig,
)

LENGTH = 16_384


def experiment() -> Experiment:
    return Experiment(
        name="long_document",
        model=ModelConfig(
            vocabulary_size=32000,
            d_model=1024,
            d_ff=4096,
            heads=8,
            d_k=128,
            d_v=128,
            dropout=0.3,
            dtype="bfloat16",
        ),
        data=DataConfig(
            corpora=(
                CorpusConfig(
                    name="documents_ende",
                    source_language="en",
                    target_language="de",
                    train=("documents/train.en.gz", "documents/train.de.gz"),
                    dev=("documents/dev.en.gz", "documents/dev.de.gz"),
                ),
            ),
            vocabulary=VocabularyConfig(size=32000),
            rows=16,
            row_length=LENGTH,
        ),
        mesh=MeshConfig(context=4),
        training=TrainingConfig(
            steps=100_000,
            loss_chunks=64,
            evaluate_every=2000,
            evaluation_sentences=16,
            save_every=1000,
            keep=5,
        ),
        search=SearchConfig(max_source_length=LENGTH, max_length=LENGTH, block_rows=1),
    )
