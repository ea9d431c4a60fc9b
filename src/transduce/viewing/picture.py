"""Attention as a picture for a paper, drawn by matplotlib."""

import io
import warnings
from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from transduce.model.heads import Head
from transduce.viewing.attention import Attention

_LINE = 0.22  # inches between words
_GAP = 1.6  # inches between the columns
_LETTER = 0.085  # inches that a letter is wide, about
_LEAST = 0.01
"""Lines of less weight are too faint to be seen."""


def attention_picture(
    attention: Attention, panels: Sequence[Sequence[Head]], *, style: str
) -> tuple[bytes, list[str]]:
    """The picture as PNG or SVG, and notes on what it could not show.

    A panel for each list of heads, which are of one layer: tokens that look on the left, tokens
    that are looked at on the right, and between them a line for each weight, wide and dark as the
    weight is large, in the head's colour (Figures 3 to 5). The same arguments give the same bytes.
    """
    sides = [_sides(attention, panel[0].kind) for panel in panels]
    widths = [2 * _widest(columns) + _GAP for columns in sides]
    lines = max(len(tokens) for columns in sides for tokens in columns)
    figure = Figure(figsize=(sum(widths), (lines + 3) * _LINE), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
    for place, panel, columns in zip(axes, panels, sides, strict=True):
        _draw(place, attention, panel, columns, lines)
    buffer = io.BytesIO()
    # Text of an SVG stays text, which programs can edit and search.
    metadata = {"Date": None} if style == "svg" else {}
    with (
        warnings.catch_warnings(record=True) as raised,
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "transduce"}),
    ):
        warnings.filterwarnings("always", message=r"Glyph \d+ .* missing from font", append=False)
        figure.savefig(buffer, format=style, dpi=300, metadata=metadata)
    missing = {str(one.message) for one in raised if "missing from" in str(one.message)}
    for one in raised:
        if "missing from" not in str(one.message):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    notes = []
    if missing and style == "png":
        notes.append(f"{len(missing)} characters are in no font of matplotlib and show as boxes")
    return buffer.getvalue(), notes


def _sides(attention: Attention, kind: str) -> list[list[str]]:
    both = (attention.rows(kind), attention.columns(kind))
    return [[token.replace("\u2581", " ").strip() or "\u2581" for token in side] for side in both]


def _widest(columns: Sequence[Sequence[str]]) -> float:
    return max(len(token) for tokens in columns for token in tokens) * _LETTER + 0.2


def _draw(
    axes: Axes,
    attention: Attention,
    panel: Sequence[Head],
    columns: Sequence[Sequence[str]],
    lines: int,
) -> None:
    kind, layer = panel[0].kind, panel[0].layer
    heads = [head.head for head in panel]
    whole = len(heads) == attention.weights[kind].shape[1]
    title = f"{kind}.{layer}" if whole else ", ".join(map(str, panel))
    axes.set_title(title, fontsize=9, parse_math=False)
    axes.set(xlim=(0, 1), ylim=(lines - 0.5, -0.5))
    axes.axis("off")
    for x, align, tokens in ((-0.02, "right", columns[0]), (1.02, "left", columns[1])):
        for y, token in enumerate(tokens):
            # A dollar sign is one, and begins no formula.
            axes.text(x, y, token, ha=align, va="center", fontsize=9, parse_math=False)
    colours = matplotlib.colormaps["tab10" if max(heads) < 10 else "tab20"]
    step = min(0.1, 0.6 / len(heads))
    for place, head in enumerate(heads):
        # Heads lie beside each other, so that none hides another.
        shift = (place - (len(heads) - 1) / 2) * step
        weights = attention.weights[kind][layer, head]
        seen = [(row, column) for row, column in zip(*(weights >= _LEAST).nonzero(), strict=True)]
        values = [float(weights[each]) for each in seen]
        axes.add_collection(
            LineCollection(
                [[(0, row + shift), (1, column + shift)] for row, column in seen],
                linewidths=[0.2 + 1.8 * value for value in values],
                colors=[to_rgba(colours(head % colours.N), 0.06 + 0.94 * v) for v in values],
                capstyle="round",
            )
        )
