"""The configuration of an experiment: frozen dataclasses, checked when they are made.

Every field can be set in an experiment file and, but for the corpora, overridden on the command
line by its dotted name. This module imports nothing heavy, so that a wrong field is reported at
once; dtypes are therefore strings.
"""

from dataclasses import dataclass, field
from typing import Literal

from transduce.config_checks import (
    Diverged,
    Interrupted,
    RequestError,
    SaveFailed,
    VariantsFailed,
    WriteFailed,
    fraction,
    not_negative,
    positive,
    require,
)
from transduce.config_data import CorpusConfig, DataConfig, FilterConfig, VocabularyConfig

__all__ = [
    "CorpusConfig",
    "DataConfig",
    "Diverged",
    "Experiment",
    "FilterConfig",
    "Interrupted",
    "MeshConfig",
    "ModelConfig",
    "OptimizerConfig",
    "RequestError",
    "SaveFailed",
    "SearchConfig",
    "TrainingConfig",
    "VariantsFailed",
    "VocabularyConfig",
    "WriteFailed",
]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The Transformer of section 3; the defaults are the paper's base model (Table 3)."""

    vocabulary_size: int = 37_000
    """V, rows of the table that source, target and logits share; at least the pieces in use."""
    encoder_layers: int = 6
    """N of the encoder."""
    decoder_layers: int = 6
    """N of the decoder."""
    d_model: int = 512
    """D, width of the residual stream."""
    d_ff: int = 2048
    """F, inner width of the feed-forward sub-layers."""
    heads: int = 8
    """h, attention heads in every attention sub-layer."""
    d_k: int = 64
    """Width of a head's queries and keys."""
    d_v: int = 64
    """Width of a head's values."""
    dropout: float = 0.1
    """P_drop, on sub-layer outputs and on embeddings plus positions (section 5.4)."""
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """sinusoidal (section 3.5), learned (Table 3, row E), or rotary (not in the paper)."""
    learned_positions: int = 1024
    """Rows of the table when positions are learned; longer sequences are refused."""
    norm: Literal["post", "pre"] = "post"
    """Layer normalisation after the residual sum (the paper) or before the sub-layer."""
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """Of activations. Parameters, softmax, normalisation and loss are float32, or float64."""
    attention: Literal["auto", "plain", "chunked", "splash", "cudnn"] = "auto"
    """How attention is computed: plain makes all scores at once, the others a block of them at a
    time, chunked anywhere, splash on TPUs, cudnn on NVIDIA GPUs; auto chooses by platform and
    length."""
    unroll: int = 1
    """Layers unrolled in the scan over layers; 0 unrolls all, faster on a CPU, slower to compile"""

    def __post_init__(self) -> None:
        positive("model", self, "vocabulary_size encoder_layers decoder_layers d_model d_ff")
        positive("model", self, "heads d_k d_v learned_positions")
        fraction("model", self, "dropout")
        not_negative("model", self, "unroll")
        require(
            self.positions != "sinusoidal" or self.d_model % 2 == 0,
            f"model.d_model must be even for sinusoidal positions, not {self.d_model}",
        )
        require(
            self.positions != "rotary" or self.d_k % 2 == 0,
            f"model.d_k must be even for rotary positions, not {self.d_k}",
        )
        dtypes = {"splash": ("bfloat16", "float32"), "cudnn": ("bfloat16",)}
        taken = dtypes.get(self.attention, (self.dtype,))
        require(
            self.dtype in taken,
            f"model.attention {self.attention} computes in {' and '.join(taken)} alone, not in "
            f"model.dtype {self.dtype}: auto, plain and chunked do",
        )


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Adam and the schedule of section 5.3."""

    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    warmup_steps: int = 4000
    """Updates until the learning rate peaks; from there it falls as step^-0.5."""
    peak_learning_rate: float = 0.0
    """0: the paper's d_model^-0.5 warmup_steps^-0.5."""
    clip_norm: float = 0.0
    """Global norm above which gradients are scaled down; 0: never (the paper)."""

    def __post_init__(self) -> None:
        fraction("optimizer", self, "beta1 beta2")
        positive("optimizer", self, "epsilon warmup_steps")
        not_negative("optimizer", self, "peak_learning_rate clip_norm")


@dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """How many devices each mesh axis has; their product is the number of devices used."""

    data: int = -1
    """Replicas of the model that share the batch; -1: all devices that the other axes leave."""
    fsdp: int = 1
    """As data, with parameters and optimiser state divided too."""
    context: int = 1
    """Divides the positions of every row, for rows that are longer than one device holds."""
    tensor: int = 1
    """Divides heads, feed-forward width and vocabulary."""

    def __post_init__(self) -> None:
        positive("mesh", self, "fsdp context tensor")
        require(
            self.data == -1 or self.data > 0,
            f"mesh.data must be positive or -1, not {self.data}",
        )


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The run: its length, what is logged, evaluated and saved, and when."""

    steps: int = 100_000
    """Updates of the parameters."""
    epochs: float = 0.0
    """Ends the run after the update in which so many times the selected training pairs were
    reached, if that is before `steps`; 0: no such end."""
    minutes: float = 0.0
    """Ends the run after so much time in updates, over all restarts; compiling, evaluating and
    saving do not count. 0: no such end."""
    patience: int = 0
    """Ends the run after so many evaluations on dev, one after the other, that were not the best
    so far; 0: no such end."""
    watch: Literal["loss", "bleu", "f1"] = "loss"
    """What on dev says which parameters are the best, BLEU of text, F1 of trees; they are kept
    beside the newest."""
    warm_start: str = ""
    """Workdir whose best parameters, else its newest, and whose vocabulary a new run begins with;
    its optimiser and its schedule begin anew."""
    ema_decay: float = 0.0
    """Of a moving average of the parameters, which is evaluated and decoded with in their place:
    after update t it keeps min(ema_decay, (1 + t) / (10 + t)) of itself. 0: no average."""
    label_smoothing: float = 0.1
    """epsilon_ls of section 5.4."""
    guided_attention: float = 0.0
    """Of a parser, for which it is known: how much -log of the attention that each tag pays to its
    word weighs beside the loss, in the first head of cross-attention, the mean over layers. 0:
    attention is not told where to look, as in the paper."""
    loss_chunks: int = 8
    """Parts, as far as they divide a row's length, in which the positions of a batch go through
    the final layer and the loss: more need less memory, and on a CPU stay in its cache."""
    remat: Literal["none", "layer", "dots"] = "none"
    """What a layer makes again in the backward pass instead of keeping it: nothing; all but its
    input; all but its input and its products with matrices."""
    accumulation: int = 1
    """Micro-batches that one update adds up; data.rows is divided by it."""
    seed: int = 1
    """Of the initial parameters and of dropout."""
    log_every: int = 100
    """Updates between two training records."""
    evaluate_every: int = 1000
    """Updates between two evaluations on the dev split; 0: only at the end."""
    evaluation_sentences: int = 0
    """Dev sentences that are translated for BLEU; 0: all of them."""
    save_every: int = 1000
    """Updates between two checkpoints; the last update is always saved."""
    keep: int = 5
    """Checkpoints kept, the newest ones. One that was made on the way, where the run was
    interrupted or ended, is kept besides until the next."""
    samples: int = 4
    """Translations printed beside their references at an evaluation."""
    nonfinite: Literal["stop", "skip"] = "stop"
    """What is done when the loss or the gradient of an update is no finite number: the run ends,
    or goes on without that update. WORKDIR/nonfinite lists its sentence pairs either way."""
    nonfinite_limit: int = 10
    """Updates in a row that may be left out so; one more ends the run."""
    skip_steps: tuple[str, ...] = ()
    """Updates that are left out on purpose, FIRST:LAST; their batches are passed over."""
    on_damage: Literal["stop", "previous"] = "stop"
    """What is done when the newest checkpoint is damaged: the run ends, or goes on from the one
    before it that is whole."""

    def __post_init__(self) -> None:
        positive("training", self, "loss_chunks steps accumulation log_every save_every keep")
        fraction("training", self, "label_smoothing")
        fraction("training", self, "ema_decay")
        not_negative("training", self, "evaluate_every evaluation_sentences samples seed")
        not_negative("training", self, "epochs minutes patience guided_attention")
        positive("training", self, "nonfinite_limit")
        for updates in self.skip_steps:
            first, _, last = updates.partition(":")
            require(
                first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last),
                f"training.skip_steps must be FIRST:LAST, counted from 1, not {updates!r}",
            )
        require(
            not self.patience or self.evaluate_every > 0,
            "training.patience needs evaluations: set training.evaluate_every",
        )


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """Beam search (section 6.1), or drawing at random; lengths are in pieces, without EOS."""

    beam: int = 4
    """K, hypotheses kept a sentence; 1 is greedy search."""
    length_penalty: Literal["paper", "power", "none"] = "paper"
    """((5 + |Y|) / 6)^alpha, |Y|^alpha, or none; a log-probability is divided by it, |Y| counting
    EOS."""
    alpha: float = 0.6
    """The exponent; 0: no penalty."""
    coverage: float = 0.0
    """Weight of Wu et al.'s (2016, equation 14) penalty for source tokens that no piece attends
    to; 0: none."""
    extra_length: int = 50
    """An output has at most max_ratio times as many pieces as its source, and this many more."""
    max_ratio: float = 1.0
    """See extra_length."""
    max_length: int = 0
    """And never more than so many; 0: no such limit."""
    min_ratio: float = 0.0
    """An output has at least so many times the pieces of its source."""
    min_length: int = 0
    """And never fewer than so many; 0: an output may be empty."""
    ban: tuple[str, ...] = ()
    """Pieces of the vocabulary that are never written, such as <unk>."""
    no_repeat_ngram: int = 0
    """No so many pieces in a row are written twice; 0: anything may be."""
    grammar: Literal["", "tree"] = ""
    """tree, of a parser: only trees over the words of the source are written, with tags of
    punctuation at punctuation. Empty: anything may be, and what is no tree is repaired."""
    temperature: float = 0.0
    """Outputs are drawn at random, from the softmax of the logits divided by this, from 0.01 to
    100; 0: beam search."""
    top_k: int = 0
    """Of what is drawn from: only the so many most probable pieces; 0: all."""
    top_p: float = 1.0
    """And only the most probable ones that together are so probable; 1: all."""
    seed: int = 1
    """Of what is drawn; so is the number of the line."""
    block_rows: int = 16
    """Sentences searched together in one block of fixed shape."""
    blocks: int = 2
    """Blocks that a device has at work at a time, so that it works on one while another waits."""
    devices: int = 0
    """Devices that search, each with blocks of its own; 0: all that this process has."""
    dtype: Literal["", "float32", "bfloat16"] = ""
    """What is computed in, and matrices are stored in; empty: the model's dtype."""
    max_source_length: int = 1024
    """Pieces of a source line that are read at once."""
    long_lines: Literal["cut", "split"] = "cut"
    """What is done with a longer one, with a warning: what is beyond is left out, or it is split,
    at the ends of sentences where it has any, and the translations joined."""

    def __post_init__(self) -> None:
        positive("search", self, "beam block_rows blocks max_source_length max_ratio")
        not_negative(
            "search", self, "extra_length max_length min_length min_ratio devices coverage"
        )
        not_negative("search", self, "no_repeat_ngram temperature top_k seed")
        require(
            0 < self.top_p <= 1, f"search.top_p must be above 0 and at most 1, not {self.top_p}"
        )
        require(
            self.temperature == 0 or 0.01 <= self.temperature <= 100,
            f"search.temperature must be 0 or from 0.01 to 100, not {self.temperature}",
        )
        require(
            not (self.grammar and self.no_repeat_ngram),
            "search.grammar and search.no_repeat_ngram exclude each other: trees repeat brackets",
        )
        room = self.max_ratio >= 1 and self.extra_length >= 2 and not self.max_length
        require(
            room or not self.grammar,
            "search.grammar needs room for a bracket around all words: set search.max_ratio to at "
            "least 1, search.extra_length to at least 2 and search.max_length to 0",
        )
        drawn = self.top_k or self.top_p < 1
        require(
            self.temperature > 0 or not drawn,
            "search.top_k and search.top_p are of drawing at random: set search.temperature",
        )
        require(
            not self.max_length or self.min_length <= self.max_length,
            f"search.min_length ({self.min_length}) is more than search.max_length "
            f"({self.max_length})",
        )


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that decides a run."""

    name: str
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchConfig = field(default_factory=SearchConfig)

    def __post_init__(self) -> None:
        wanted, have = self.data.vocabulary.size, self.model.vocabulary_size
        require(
            wanted <= have,
            f"data.vocabulary.size ({wanted}) is larger than model.vocabulary_size ({have}): "
            f"set model.vocabulary_size to at least {wanted}",
        )
        measured = "f1" if self.data.is_of_trees else "bleu"
        require(
            self.training.watch in ("loss", measured) or not self.data.corpora,
            f"training.watch must be loss or {measured} with these corpora, not "
            f"{self.training.watch}",
        )
        require(
            self.training.guided_attention == 0 or self.data.is_of_trees,
            "training.guided_attention must be 0 where no corpus is a treebank: which words belong "
            "together is known of trees alone",
        )
        rows, parts = self.data.rows, self.training.accumulation
        require(
            rows % parts == 0,
            f"data.rows ({rows}) must be a multiple of training.accumulation ({parts})",
        )
        length, context = self.data.row_length, self.mesh.context
        require(
            length % context == 0,
            f"data.row_length ({length}) must be a multiple of mesh.context ({context})",
        )
        require(
            self.model.positions != "learned"
            or self.data.row_length <= self.model.learned_positions,
            f"data.row_length ({self.data.row_length}) is larger than model.learned_positions "
            f"({self.model.learned_positions})",
        )
