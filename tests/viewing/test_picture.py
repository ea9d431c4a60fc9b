"""Pictures for papers."""

import xml.etree.ElementTree as ET

import pytest

from transduce.model.heads import Head
from transduce.viewing.attention import Attention

pytest.importorskip("matplotlib", reason="the extra view is not installed")

from transduce.viewing.picture import attention_picture  # after its dependency was asked for

LAYER = [Head(kind="cross", layer=1, head=head) for head in range(3)]
ALONE = [Head(kind="decoder", layer=0, head=1)]


def test_an_svg_has_its_words_as_text_and_a_line_for_each_weight(attention: Attention) -> None:
    data, notes = attention_picture(attention, [LAYER, ALONE], style="svg")
    root = ET.fromstring(data)
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    for token in ("the", "dog", "</script><script>alert(1)</script>", "<b>", "(S", "<s>"):
        assert token in texts
    assert {"cross.1", "decoder.0.1"} <= set(texts)
    lines = sum(
        len(list(group.iter("{http://www.w3.org/2000/svg}path")))
        for group in root.iter("{http://www.w3.org/2000/svg}g")
        if group.get("id", "").startswith("LineCollection")
    )
    expected = (attention.weights["cross"][1] >= 0.01).sum()
    assert lines == expected + (attention.weights["decoder"][0, 1] >= 0.01).sum()
    assert notes == []


def test_a_picture_is_the_same_each_time_and_dollars_are_no_formula(attention: Attention) -> None:
    priced = Attention(
        source=("$x^2$", "$"),
        read=("<s>",),
        target=("$\\undefined$",),
        weights={kind: w[..., :1, :2] for kind, w in attention.weights.items()},
    )
    once, again = (attention_picture(priced, [LAYER], style="svg")[0] for _ in range(2))
    assert once == again
    assert b"$x^2$" in once
    assert b"$\\undefined$" in once


def test_a_png_says_which_characters_it_cannot_show(attention: Attention) -> None:
    rare = Attention(
        source=("\U0001f9ff\u4e2d", "a"),
        read=("<s>",),
        target=("b",),
        weights={kind: w[..., :1, :2] for kind, w in attention.weights.items()},
    )
    data, notes = attention_picture(rare, [LAYER], style="png")
    assert data.startswith(b"\x89PNG\r\n")
    assert notes == ["2 characters are in no font of matplotlib and show as boxes"]
