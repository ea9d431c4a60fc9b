"""The report's picture: BLEU with its interval, and perplexity, of each variant."""

import io
from collections.abc import Sequence

from transduce.config import RequestError
from transduce.sweeping.report import Row


def draw(rows: Sequence[Row]) -> bytes:
    """An SVG file with a line for each variant that has BLEU or perplexity.

    Raises `RequestError` when matplotlib, of the extra `view`, is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RequestError(
            "the picture of a report needs matplotlib: pip install -e .[view]; "
            "the tables are written"
        ) from error
    rows = [row for row in rows if row.perplexity is not None]
    figure = Figure(figsize=(9, 1 + 0.28 * len(rows)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    places = range(len(rows))
    for row, place in zip(rows, places, strict=True):
        if row.bleu:
            left.errorbar(row.bleu.score, place, xerr=row.bleu.half_width, fmt="o", color="C0")
        right.plot(row.perplexity, place, "o", color="C1")
    left.set_yticks(places, [row.variant.name for row in rows])
    left.invert_yaxis()
    left.set_xlabel("dev BLEU, 95% interval")
    right.set_xlabel("dev perplexity")
    for axes in (left, right):
        axes.grid(axis="x", alpha=0.4)
        if rows:
            axes.axhline(0, color="0.8", zorder=0)
    file = io.BytesIO()
    # The same rows give the same file: no random ids, no date; and letters stay text.
    with rc_context({"svg.hashsalt": "transduce", "svg.fonttype": "none"}):
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    return file.getvalue()
