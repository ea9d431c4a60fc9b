"""How much a model holds and computes, by formula from its configuration.

The symbols are the paper's: N layers of an encoder and a decoder, d_model, d_ff, h heads whose
keys are d_k and whose values are d_v wide, V rows of the table. A batch is B rows of S source and
T target positions.
"""

from dataclasses import astuple, dataclass

from transduce.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Trainable parameters by what they are for."""

    embedding: int
    """The table of source, target and logits, and that of learned positions."""
    attention: int
    feed_forward: int
    """Biases included."""
    norms: int
    """Gains and biases of layer normalisation."""

    @property
    def total(self) -> int:
        return sum(astuple(self))


def parameters(config: ModelConfig) -> Parameters:
    """Parameters by formula.

    embedding       V d_model, and a row of d_model for each learned position
    attention       2 h d_model (d_k + d_v) a sub-layer, N of the encoder and 2N of the decoder
    feed-forward    2 d_model d_ff + d_ff + d_model a layer
    norms           2 d_model each: 2N of the encoder, 3N of the decoder, 2 more if pre-norm
    """
    encoder, decoder = config.encoder_layers, config.decoder_layers
    d_model, d_ff = config.d_model, config.d_ff
    learned = config.learned_positions if config.positions == "learned" else 0
    last = 2 if config.norm == "pre" else 0
    return Parameters(
        embedding=(config.vocabulary_size + learned) * d_model,
        attention=(encoder + 2 * decoder) * 2 * d_model * _heads_width(config),
        feed_forward=(encoder + decoder) * (2 * d_model * d_ff + d_ff + d_model),
        norms=(2 * encoder + 3 * decoder + last) * 2 * d_model,
    )


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Floating-point operations of products of matrices; a multiply-add is two."""

    projections: int
    """W^Q, W^K, W^V and W^O of every attention sub-layer."""
    attention: int
    """Q K^T, and the softmax times V."""
    feed_forward: int
    logits: int

    @property
    def total(self) -> int:
        return sum(astuple(self))


def forward_flops(
    config: ModelConfig, *, rows: int, source_length: int, target_length: int
) -> Flops:
    """Of the model over a batch, logits included.

    Looking up embeddings is no product of matrices and is not counted, nor is anything that costs
    a few operations a value: softmax, normalisation, residual sums, dropout.

    projections     4 B S h d_model (d_k + d_v) a layer of the encoder; of the decoder's, as much
                    with T for S, and 2 B (S + T) h d_model (d_k + d_v) to attend to the source
    attention       2 B S^2 h (d_k + d_v) a layer of the encoder, 2 B (T^2 + T S) h (d_k + d_v) of
                    the decoder: every position with every one of its row, as plain attention
                    computes them, those too that may not be seen
    feed-forward    4 B S d_model d_ff, 4 B T d_model d_ff
    logits          2 B T d_model V
    """
    encoder, decoder = config.encoder_layers, config.decoder_layers
    source, target = rows * source_length, rows * target_length
    width, d_model = _heads_width(config), config.d_model
    seen = encoder * source_length**2
    seen += decoder * (target_length**2 + target_length * source_length)
    return Flops(
        projections=(4 * encoder * source + 4 * decoder * target + 2 * decoder * (source + target))
        * (d_model * width),
        attention=2 * rows * seen * width,
        feed_forward=4 * d_model * config.d_ff * (encoder * source + decoder * target),
        logits=2 * target * d_model * config.vocabulary_size,
    )


def training_flops(
    config: ModelConfig, *, rows: int, source_length: int, target_length: int
) -> Flops:
    """Of `forward_flops` and of the gradients, for an update over a batch of so many rows.

    The gradient of a product has two products as large: three times `forward_flops`. What is
    computed a second time to save memory (rematerialisation, attention that keeps no scores) is
    not counted, nor are the optimiser, which needs a few operations a parameter, and the scores
    once more of a head whose attention is guided.
    """
    forward = forward_flops(
        config, rows=rows, source_length=source_length, target_length=target_length
    )
    return Flops(
        projections=3 * forward.projections,
        attention=3 * forward.attention,
        feed_forward=3 * forward.feed_forward,
        logits=3 * forward.logits,
    )


def _heads_width(config: ModelConfig) -> int:
    """h (d_k + d_v)."""
    return config.heads * (config.d_k + config.d_v)
