"""The configuration of an experiment: frozen dataclasses, checked when they are made.

Every field can be set in an experiment file and, but for the corpora, overridden on the command
line by its dotted name. This module imports nothing heavy, so that a wrong field is reported at
once; dtypes are therefore strings.
"""

from dataclasses import dataclass, field
from typing import Literal

import tyro


class RequestError(Exception):
    """What was asked for cannot be done as asked; the message names what and says what would be.

    The command line prints the message as one line and exits with status 2.
    """


class Diverged(Exception):
    """The loss or the gradient is no longer a finite number; the message says at which update.

    The command line prints the message as one line and exits with status 1.
    """


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise RequestError(message)


def _positive(section: str, owner: object, names: str) -> None:
    for name in names.split():
        value = getattr(owner, name)
        _require(value > 0, f"{section}.{name} must be positive, not {value}")


def _not_negative(section: str, owner: object, names: str) -> None:
    for name in names.split():
        value = getattr(owner, name)
        _require(value >= 0, f"{section}.{name} must not be negative, not {value}")


def _fraction(section: str, owner: object, names: str) -> None:
    for name in names.split():
        value = getattr(owner, name)
        _require(0 <= value < 1, f"{section}.{name} must be at least 0 and below 1, not {value}")


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
    unroll: int = 1
    """Layers unrolled in the scan over layers; 0 unrolls all, faster on a CPU, slower to compile"""

    def __post_init__(self) -> None:
        _positive("model", self, "vocabulary_size encoder_layers decoder_layers d_model d_ff")
        _positive("model", self, "heads d_k d_v learned_positions")
        _fraction("model", self, "dropout")
        _not_negative("model", self, "unroll")
        _require(
            self.positions != "sinusoidal" or self.d_model % 2 == 0,
            f"model.d_model must be even for sinusoidal positions, not {self.d_model}",
        )
        _require(
            self.positions != "rotary" or self.d_k % 2 == 0,
            f"model.d_k must be even for rotary positions, not {self.d_k}",
        )


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """Where the sentence pairs of an experiment come from."""

    name: str
    """Names the prepared data set."""
    source_language: str
    target_language: str
    builder: Literal["files", "phrasebook"] = "files"
    """Parallel text files, or the phrasebook that transduce makes itself."""
    train: tuple[str, str] = ("", "")
    """Source and target file, plain or gzip, one sentence a line; relative to data.folder."""
    dev: tuple[str, str] = ("", "")
    test: tuple[str, str] = ("", "")
    """May be left out, as ("", "")."""

    def __post_init__(self) -> None:
        _require(
            bool(self.name) and self.name.replace("_", "a").isalnum() and self.name.isascii(),
            f"a corpus' name is made of letters, digits and underscores, not {self.name!r}",
        )
        _require(
            self.source_language != self.target_language,
            f"corpus {self.name}: source_language and target_language must differ",
        )
        if self.builder == "files":
            for split in ("train", "dev"):
                _require(
                    all(getattr(self, split)),
                    f"corpus {self.name}: {split} must name a source and a target file",
                )


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """The SentencePiece vocabulary that source and target share."""

    size: int = 37_000
    """Pieces, the special symbols included."""
    kind: Literal["bpe", "unigram"] = "bpe"
    normalization: Literal["identity", "nmt_nfkc", "nfkc"] = "identity"
    """SentencePiece's rule; identity keeps every character as it was."""
    byte_fallback: bool = True
    """Spell characters that are not in the vocabulary in UTF-8 bytes; else they are unknown."""
    character_coverage: float = 0.9995
    """Share of the training text's characters that get a piece of their own."""
    training_sentences: int = 4_000_000
    """At most this many sentences, evenly taken from both sides, train the vocabulary."""
    source_model: str = ""
    """An existing SentencePiece model to use instead of training one."""
    target_model: str = ""
    """The same for the target side; as there is one table, both must hold the same pieces."""

    def __post_init__(self) -> None:
        _positive("data.vocabulary", self, "size training_sentences")
        coverage = self.character_coverage
        _require(
            0 < coverage <= 1,
            f"data.vocabulary.character_coverage must be in (0, 1], not {coverage}",
        )
        _require(
            bool(self.source_model) == bool(self.target_model),
            "data.vocabulary.source_model and target_model go together: set both or neither",
        )


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Corpora, vocabulary, and how batches are made of them."""

    corpora: tyro.conf.Fixed[tuple[CorpusConfig, ...]] = ()
    """Set in the experiment file."""
    folder: str = ""
    """Where relative paths of corpora start; empty: $TRANSDUCE_DATA, else ../shared/data."""
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    readers: int = 16
    """Streams that shuffle and pack on their own; the order of examples depends on this number."""
    rows: int = 128
    """Rows of a global batch, over all readers, devices and accumulated micro-batches."""
    row_length: int = 256
    """Tokens of a row on either side; pairs with a side that does not fit are left out."""
    packing_bins: int = 32
    """Rows that a reader fills at a time, first fit; more waste less padding."""
    subword_sampling: float = 0.0
    """Of training text only; 0: off. BPE: the share of merges left out at random. Unigram: a
    segmentation of probability p is drawn in proportion to p^((1 - r) / r)."""
    prefetch: int = 2
    """Batches made ready ahead of the step."""
    seed: int = 1
    """Of shuffling and subword sampling."""

    def __post_init__(self) -> None:
        _positive("data", self, "readers rows row_length packing_bins prefetch")
        _not_negative("data", self, "seed")
        _fraction("data", self, "subword_sampling")
        _require(
            self.rows % self.readers == 0,
            f"data.rows ({self.rows}) must be a multiple of data.readers ({self.readers})",
        )
        names = [corpus.name for corpus in self.corpora]
        _require(len(set(names)) == len(names), f"corpora have the same name: {names}")


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
        _fraction("optimizer", self, "beta1 beta2")
        _positive("optimizer", self, "epsilon warmup_steps")
        _not_negative("optimizer", self, "peak_learning_rate clip_norm")


@dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """How many devices each mesh axis has; their product is the number of devices used."""

    data: int = -1
    """Replicas of the model that share the batch; -1: all devices that the other axes leave."""
    fsdp: int = 1
    """As data, with parameters and optimiser state divided too."""
    tensor: int = 1
    """Divides heads, feed-forward width and vocabulary."""

    def __post_init__(self) -> None:
        _positive("mesh", self, "fsdp tensor")
        _require(
            self.data == -1 or self.data > 0,
            f"mesh.data must be positive or -1, not {self.data}",
        )


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The run: its length, what is logged, evaluated and saved, and when."""

    steps: int = 100_000
    """Updates of the parameters."""
    label_smoothing: float = 0.1
    """epsilon_ls of section 5.4."""
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
    """Checkpoints kept, the newest ones."""
    samples: int = 4
    """Translations printed beside their references at an evaluation."""

    def __post_init__(self) -> None:
        _positive("training", self, "steps accumulation log_every save_every keep")
        _fraction("training", self, "label_smoothing")
        _not_negative("training", self, "evaluate_every evaluation_sentences samples seed")


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """Beam search (section 6.1)."""

    beam: int = 4
    """K, hypotheses kept a sentence; 1 is greedy search."""
    alpha: float = 0.6
    """Exponent of the length penalty ((5 + |Y|) / 6)^alpha; 0: none."""
    extra_length: int = 50
    """An output has at most as many pieces as its source and this many more."""
    block_rows: int = 16
    """Sentences searched together in one block of fixed shape."""
    max_source_length: int = 1024
    """Pieces of a source line that are translated; what is beyond them is cut, with a warning."""

    def __post_init__(self) -> None:
        _positive("search", self, "beam block_rows max_source_length")
        _not_negative("search", self, "extra_length")


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
        _require(
            wanted <= have,
            f"data.vocabulary.size ({wanted}) is larger than model.vocabulary_size ({have}): "
            f"set model.vocabulary_size to at least {wanted}",
        )
        rows, parts = self.data.rows, self.training.accumulation
        _require(
            rows % parts == 0,
            f"data.rows ({rows}) must be a multiple of training.accumulation ({parts})",
        )
        _require(
            self.model.positions != "learned"
            or self.data.row_length <= self.model.learned_positions,
            f"data.row_length ({self.data.row_length}) is larger than model.learned_positions "
            f"({self.model.learned_positions})",
        )
