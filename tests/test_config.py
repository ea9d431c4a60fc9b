from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from transduce.config import (
    CorpusConfig,
    DataConfig,
    Experiment,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    RequestError,
    SearchConfig,
    TrainingConfig,
    VocabularyConfig,
)

SECTIONS: dict[str, Callable[..., Any]] = {
    "model": ModelConfig,
    "data": DataConfig,
    "data.vocabulary": VocabularyConfig,
    "optimizer": OptimizerConfig,
    "mesh": MeshConfig,
    "training": TrainingConfig,
    "search": SearchConfig,
}

POSITIVE = [
    "model.vocabulary_size",
    "model.encoder_layers",
    "model.decoder_layers",
    "model.d_model",
    "model.d_ff",
    "model.heads",
    "model.d_k",
    "model.d_v",
    "model.learned_positions",
    "data.vocabulary.size",
    "data.vocabulary.training_sentences",
    "data.vocabulary.character_coverage",
    "data.readers",
    "data.rows",
    "data.row_length",
    "data.packing_bins",
    "data.prefetch",
    "optimizer.epsilon",
    "optimizer.warmup_steps",
    "mesh.data",
    "mesh.fsdp",
    "mesh.context",
    "mesh.tensor",
    "training.steps",
    "training.accumulation",
    "training.log_every",
    "training.save_every",
    "training.keep",
    "training.loss_chunks",
    "training.nonfinite_limit",
    "search.beam",
    "search.block_rows",
    "search.blocks",
    "search.max_ratio",
    "search.max_source_length",
]

NOT_NEGATIVE = [
    "model.dropout",
    "model.unroll",
    "data.subword_sampling",
    "optimizer.beta1",
    "optimizer.beta2",
    "optimizer.peak_learning_rate",
    "optimizer.clip_norm",
    "training.label_smoothing",
    "training.evaluate_every",
    "training.evaluation_sentences",
    "training.samples",
    "training.epochs",
    "training.minutes",
    "training.guided_attention",
    "training.patience",
    "training.ema_decay",
    "search.extra_length",
    "search.coverage",
    "search.max_length",
    "search.min_length",
    "search.min_ratio",
    "search.no_repeat_ngram",
    "search.temperature",
    "search.top_k",
    "search.seed",
    "search.devices",
    "data.seed",
    "data.workers",
    "training.seed",
]

BELOW_ONE = [
    "model.dropout",
    "data.subword_sampling",
    "optimizer.beta1",
    "optimizer.beta2",
    "training.label_smoothing",
    "training.ema_decay",
]


FREE = ["search.alpha", "search.top_p"]


def test_every_number_of_the_configuration_stands_above() -> None:
    numbers = {
        f"{section}.{name}"
        for section, kind in SECTIONS.items()
        for name, hint in get_type_hints(kind).items()
        if hint in (int, float)
    }
    assert numbers == {*POSITIVE, *NOT_NEGATIVE, *BELOW_ONE, *FREE}


def make(key: str, value: object) -> Any:
    section, _, name = key.rpartition(".")
    return SECTIONS[section](**{name: value})


@pytest.mark.parametrize("key", POSITIVE)
@pytest.mark.parametrize("value", [0, -3])
def test_what_must_be_positive_is_refused_by_its_dotted_name(key: str, value: int) -> None:
    with pytest.raises(RequestError, match=rf"^{key} must be .*, not {value}$"):
        make(key, value)


@pytest.mark.parametrize("key", NOT_NEGATIVE)
def test_what_must_not_be_negative_is_refused_by_its_dotted_name(key: str) -> None:
    with pytest.raises(RequestError, match=rf"^{key} must .*, not -2$"):
        make(key, -2)
    make(key, 0)


@pytest.mark.parametrize("key", BELOW_ONE)
def test_a_fraction_of_one_is_refused_by_its_dotted_name(key: str) -> None:
    with pytest.raises(RequestError, match=rf"^{key} must be .* below 1, not 1\.0$"):
        make(key, 1.0)


@pytest.mark.parametrize("key", ["model.dropout", "optimizer.clip_norm", "optimizer.epsilon"])
def test_not_a_number_is_refused(key: str) -> None:
    with pytest.raises(RequestError, match=rf"^{key} must .*, not nan$"):
        make(key, float("nan"))


def test_values_at_the_edge_are_taken() -> None:
    MeshConfig(data=-1)
    VocabularyConfig(character_coverage=1.0)
    ModelConfig(d_model=511, positions="learned")
    ModelConfig(d_k=63)
    ModelConfig(d_k=63, positions="sinusoidal")


def test_widths_that_come_in_pairs_are_even() -> None:
    with pytest.raises(
        RequestError, match=r"^model.d_model must be even for sinusoidal.* not 511$"
    ):
        ModelConfig(d_model=511)
    with pytest.raises(RequestError, match=r"^model.d_k must be even for rotary .* not 63$"):
        ModelConfig(d_k=63, positions="rotary")


@pytest.mark.parametrize(
    ("attention", "dtypes"), [("splash", "bfloat16 and float32"), ("cudnn", "bfloat16")]
)
def test_a_kernel_that_does_not_compute_in_the_dtype_is_refused(
    attention: Any, dtypes: str
) -> None:
    for dtype in ("bfloat16", "float32", "float64"):
        if dtype in dtypes:
            assert ModelConfig(attention=attention, dtype=dtype).dtype == dtype
            continue
        message = f"^model.attention {attention} computes in {dtypes} alone, .* model.dtype {dtype}"
        with pytest.raises(RequestError, match=message):
            ModelConfig(attention=attention, dtype=dtype)
    assert ModelConfig(attention="chunked", dtype="float64").dtype == "float64"


def test_a_character_coverage_above_one_is_refused() -> None:
    with pytest.raises(RequestError, match=r"^data.vocabulary.character_coverage .*, not 1\.5$"):
        VocabularyConfig(character_coverage=1.5)


def test_patience_needs_evaluations() -> None:
    TrainingConfig(patience=3, evaluate_every=7)
    with pytest.raises(RequestError, match=r"^training\.patience .* set training\.evaluate_every$"):
        TrainingConfig(patience=3, evaluate_every=0)


def test_vocabulary_models_are_set_together() -> None:
    with pytest.raises(RequestError, match=r"^data.vocabulary.source_model and target_model"):
        VocabularyConfig(source_model="a.model")


def test_rows_divide_over_readers_and_micro_batches() -> None:
    with pytest.raises(RequestError, match=r"data.rows \(10\) .* data.readers \(4\)"):
        DataConfig(rows=10, readers=4)
    with pytest.raises(RequestError, match=r"data.rows \(8\) .* training.accumulation \(3\)"):
        Experiment(
            name="x",
            data=DataConfig(rows=8, readers=4),
            training=TrainingConfig(accumulation=3),
        )


def test_a_vocabulary_larger_than_the_table_is_refused() -> None:
    """R12: before anything is read or trained; both numbers are named."""
    with pytest.raises(
        RequestError, match=r"data.vocabulary.size \(9\) .* model.vocabulary_size \(8\)"
    ):
        Experiment(
            name="x",
            model=ModelConfig(vocabulary_size=8),
            data=DataConfig(vocabulary=VocabularyConfig(size=9)),
        )


def test_rows_longer_than_the_table_of_positions_are_refused() -> None:
    model = ModelConfig(positions="learned", learned_positions=100)
    with pytest.raises(RequestError, match=r"data.row_length \(256\) .* \(100\)"):
        Experiment(name="x", model=model)


def files_corpus(**changes: Any) -> CorpusConfig:
    fields: dict[str, Any] = {
        "name": "c",
        "source_language": "en",
        "target_language": "de",
        "train": ("a.en", "a.de"),
        "dev": ("b.en", "b.de"),
    }
    return CorpusConfig(**fields | changes)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "../a", "é"])
def test_a_corpus_is_named_by_letters_digits_and_underscores(name: str) -> None:
    with pytest.raises(RequestError, match="letters, digits and underscores"):
        files_corpus(name=name)


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_corpus_of_files_has_both_sides_of_train_and_dev(split: str) -> None:
    with pytest.raises(RequestError, match=f"corpus c: {split} must name a source and a target"):
        files_corpus(**{split: ("a.en", "")})
    assert files_corpus().test == ("", "")


def test_corpora_have_different_names() -> None:
    with pytest.raises(RequestError, match="same name"):
        DataConfig(corpora=(files_corpus(), files_corpus()))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"top_p": 0.0, "temperature": 1.0}, r"search\.top_p must be above 0 and at most 1, not 0"),
        ({"top_p": 1.1, "temperature": 1.0}, r"search\.top_p must be above 0 and at most 1"),
        ({"temperature": 1e-3}, r"search\.temperature must be 0 or from 0\.01 to 100"),
        ({"top_k": 5}, r"set search\.temperature"),
        ({"top_p": 0.9}, r"set search\.temperature"),
        ({"min_length": 6, "max_length": 5}, r"search\.min_length \(6\) is more than"),
    ],
)
def test_search_settings_that_exclude_each_other_are_refused(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        SearchConfig(**values)
