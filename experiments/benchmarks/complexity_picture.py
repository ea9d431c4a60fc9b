"""The picture of `complexity`: cost over length, a panel for each file of figures.

    python -m experiments.benchmarks.complexity_picture cpu.json tpu.json --output complexity.svg

Needs matplotlib.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import tyro
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure


@dataclass
class Arguments:
    """Draw the figures that `complexity --output` wrote."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    output: Path
    """An SVG file."""


def main() -> None:
    asked = tyro.cli(Arguments)
    figure = Figure(figsize=(5 * len(asked.files), 4.5), layout="constrained")
    panels = figure.subplots(1, len(asked.files), squeeze=False)[0]
    for axes, path in zip(panels, asked.files, strict=True):
        content = json.loads(path.read_text(encoding="utf-8"))
        layers = dict.fromkeys(point["layer"] for point in content["points"])
        for number, layer in enumerate(layers):
            points = [point for point in content["points"] if point["layer"] == layer]
            scale = 1e3 if content["on"] == "cpu" else 1
            axes.loglog(
                [point["length"] for point in points],
                [point["cost"] * scale for point in points],
                "--" if "no projections" in layer else "-",
                marker="osD^v<>"[number],
                markersize=4,
                label=layer,
            )
        axes.set_xscale("log", base=2)
        axes.set_xlabel("length n")
        unit = "ms" if content["on"] == "cpu" else "cycles that the compiler estimates"
        axes.set_title(f"{content['on']}, {content['dtype']}")
        axes.set_ylabel(unit)
        axes.grid(alpha=0.4)
    panels[0].legend(fontsize="small")
    with rc_context({"svg.hashsalt": "transduce", "svg.fonttype": "none"}):
        FigureCanvasSVG(figure).print_svg(str(asked.output), metadata={"Date": None})


if __name__ == "__main__":
    main()
