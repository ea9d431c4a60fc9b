"""Parameters of the paper's models (Table 3), counted by hand."""

from typing import Any

import pytest

from transduce.config import Experiment, ModelConfig, TrainingConfig
from transduce.model.transformer import parameter_count

BASE: dict[str, Any] = {}
BIG: dict[str, Any] = {"d_model": 1024, "d_ff": 4096, "heads": 16, "dropout": 0.3}

# What differs from base, and the paper's count in millions where it gives one.
TABLE_3: dict[str, tuple[dict[str, Any], int]] = {
    "base": (BASE, 65),
    "A h=1": ({"heads": 1, "d_k": 512, "d_v": 512}, 65),
    "A h=4": ({"heads": 4, "d_k": 128, "d_v": 128}, 65),
    "A h=16": ({"heads": 16, "d_k": 32, "d_v": 32}, 65),
    "A h=32": ({"heads": 32, "d_k": 16, "d_v": 16}, 65),
    "B d_k=16": ({"d_k": 16}, 58),
    "B d_k=32": ({"d_k": 32}, 60),
    "C N=2": ({"encoder_layers": 2, "decoder_layers": 2}, 36),
    "C N=4": ({"encoder_layers": 4, "decoder_layers": 4}, 50),
    "C N=8": ({"encoder_layers": 8, "decoder_layers": 8}, 80),
    "C d_model=256": ({"d_model": 256, "d_k": 32, "d_v": 32}, 28),
    "C d_model=1024": ({"d_model": 1024, "d_k": 128, "d_v": 128}, 168),
    "C d_ff=1024": ({"d_ff": 1024}, 53),
    "C d_ff=4096": ({"d_ff": 4096}, 90),
    "D P_drop=0": ({"dropout": 0.0}, 65),
    "D P_drop=0.2": ({"dropout": 0.2}, 65),
}


def by_hand(
    *,
    vocabulary_size: int = 37_000,
    encoder_layers: int = 6,
    decoder_layers: int = 6,
    d_model: int = 512,
    d_ff: int = 2048,
    heads: int = 8,
    d_k: int = 64,
    d_v: int = 64,
    **_: Any,
) -> int:
    attention = 2 * d_model * heads * d_k + 2 * d_model * heads * d_v
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    norm = 2 * d_model
    encoder = encoder_layers * (attention + feed_forward + 2 * norm)
    decoder = decoder_layers * (2 * attention + feed_forward + 3 * norm)
    return vocabulary_size * d_model + encoder + decoder


def test_base_has_63_045_632_parameters() -> None:
    table = 37_000 * 512  # 18,944,000
    attention = 4 * 512 * 512  # 1,048,576
    feed_forward = 512 * 2048 + 2048 + 2048 * 512 + 512  # 2,099,712
    norm = 2 * 512
    encoder = 6 * (attention + feed_forward + 2 * norm)  # 18,902,016
    decoder = 6 * (2 * attention + feed_forward + 3 * norm)  # 25,199,616
    assert table + encoder + decoder == 63_045_632
    assert parameter_count(ModelConfig(**BASE)) == 63_045_632


def test_big_has_214_171_648_parameters() -> None:
    table = 37_000 * 1024  # 37,888,000
    attention = 4 * 1024 * 1024  # 4,194,304
    feed_forward = 1024 * 4096 + 4096 + 4096 * 1024 + 1024  # 8,393,728
    norm = 2 * 1024
    encoder = 6 * (attention + feed_forward + 2 * norm)  # 75,552,768
    decoder = 6 * (2 * attention + feed_forward + 3 * norm)  # 100,730,880
    assert table + encoder + decoder == 214_171_648
    assert parameter_count(ModelConfig(**BIG)) == 214_171_648


@pytest.mark.parametrize("row", TABLE_3)
def test_every_row_of_table_3_can_be_built(row: str) -> None:
    changes, _ = TABLE_3[row]
    assert parameter_count(ModelConfig(**changes)) == by_hand(**changes)


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_label_smoothing_of_table_3_can_be_said(epsilon: float) -> None:
    """Row D, which has no bearing on the parameters."""
    experiment = Experiment(name="D", training=TrainingConfig(label_smoothing=epsilon))
    assert experiment.training.label_smoothing == epsilon


def test_learned_positions_add_their_table() -> None:
    """Row E."""
    model = ModelConfig(positions="learned", learned_positions=256)
    assert parameter_count(model) == by_hand() + 256 * 512


def test_rotary_positions_add_nothing_and_pre_norm_two_normalisations() -> None:
    assert parameter_count(ModelConfig(positions="rotary")) == by_hand()
    assert parameter_count(ModelConfig(norm="pre")) == by_hand() + 2 * 2 * 512


def test_a_vocabulary_of_41_100_gives_the_papers_counts_but_for_big() -> None:
    """The paper says "about 37000" pieces; its counts are those of about 4,000 more."""
    for row, (changes, millions) in TABLE_3.items():
        assert round(by_hand(**changes, vocabulary_size=41_100) / 1e6) == millions, row
    assert round(by_hand(**BIG, vocabulary_size=41_100) / 1e6) == 218  # the paper: 213
    assert round(by_hand(**BIG) / 1e6) == 214
