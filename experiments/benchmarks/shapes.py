"""The shapes at which training and decoding are compared. No JAX here: the peers read it too."""

SHAPES = {
    "tiny": {
        "layers": 4,
        "d_model": 128,
        "d_ff": 256,
        "heads": 4,
        "vocabulary": 8192,
        "rows": 64,
        "length": 32,
    },
    "base": {
        "layers": 6,
        "d_model": 512,
        "d_ff": 2048,
        "heads": 8,
        "vocabulary": 32000,
        "rows": 64,
        "length": 64,
    },
}
"""A batch of training has `rows` times `length` tokens on either side, padding included."""

DECODING = {"beam": 4, "source": 32, "output": 64}
"""Of random weights: K, and tokens of each source and of each output, EOS included."""
