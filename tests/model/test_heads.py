"""Heads by name, and models without some of them."""

import functools

import jax
import numpy as np
import pytest

from transduce.arrays import Array, Batch
from transduce.config import RequestError
from transduce.model.heads import Head, every_head, parse_heads, without_heads
from transduce.model.transformer import Transformer

from .examples import QUICKLY, filled, named, packed, random_pairs, tiny
from .reference import Reference

CONFIG = tiny(encoder_layers=2, decoder_layers=3)


@functools.partial(jax.jit, compiler_options=QUICKLY)
def logits(model: Transformer, batch: Batch) -> Array:
    return model(batch)


def test_a_name_is_a_head_or_all_heads_of_a_layer_counted_from_0() -> None:
    assert parse_heads("encoder.1.0", CONFIG) == [Head(kind="encoder", layer=1, head=0)]
    assert parse_heads("cross.2", CONFIG) == [
        Head(kind="cross", layer=2, head=0),
        Head(kind="cross", layer=2, head=1),
    ]
    assert str(Head(kind="decoder", layer=2, head=1)) == "decoder.2.1"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("encoder.2.0", r"encoder\.2\.0: encoder has layers 0 to 1, and no layer 2"),
        ("cross.3.0", r"cross\.3\.0: cross has layers 0 to 2, and no layer 3"),
        ("decoder.3", r"decoder\.3: decoder has layers 0 to 2, and no layer 3"),
        ("decoder.0.2", r"decoder\.0\.2: a layer has heads 0 to 1, and no head 2"),
        ("memory.0.0", "names no head: write KIND.LAYER.HEAD.*encoder, decoder, cross"),
        ("encoder", "names no head"),
        ("encoder.-1.0", "names no head"),
        ("encoder.0.0.0", "names no head"),
        ("encoder.0.0 ", "names no head"),
        ("encoder.\N{ARABIC-INDIC DIGIT ONE}.0", "names no head"),
        ("", "names no head"),
    ],
)
def test_what_is_no_head_is_refused_with_those_there_are(name: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_heads(name, CONFIG)


def test_every_head_is_each_head_of_each_layer_once() -> None:
    heads = every_head(CONFIG)
    assert len(heads) == len(set(heads)) == (2 + 3 + 3) * 2
    assert [head for name in map(str, heads) for head in parse_heads(name, CONFIG)] == heads


@pytest.mark.usefixtures("x64")
def test_a_masked_head_adds_nothing() -> None:
    """Its rows of W^O are zero, in the paper's arithmetic too, and no other number is changed."""
    model = filled(CONFIG)
    pair = random_pairs([(4, 3)], vocabulary=11, seed=2)
    batch = packed([pair], source_length=5, target_length=4)
    whole = np.asarray(logits(model, batch))[0, :3]
    seen = [whole]
    for name in ("encoder.1.0", "decoder.2.1", "cross.0"):
        masked = without_heads(model, parse_heads(name, CONFIG))
        parameters = named(model)
        for head in parse_heads(name, CONFIG):
            stack = "encoder" if head.kind == "encoder" else "decoder"
            part = "cross_attention" if head.kind == "cross" else "attention"
            key = f"{stack}.{part}.out"
            parameters[key] = parameters[key].copy()
            parameters[key][head.layer, head.head] = 0
        for key, value in named(masked).items():
            np.testing.assert_array_equal(value, parameters[key])
        paper = Reference(parameters, positions=CONFIG.positions, norm=CONFIG.norm)
        found = np.asarray(logits(masked, batch))[0, :3]
        np.testing.assert_allclose(found, paper.logits(*pair[0]), rtol=1e-9, atol=1e-9)
        assert all(np.abs(found - other).max() > 1e-3 for other in seen)
        seen.append(found)
    np.testing.assert_array_equal(np.asarray(logits(model, batch))[0, :3], whole)
