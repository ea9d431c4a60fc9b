"""Decoding throughput, ours, Hugging Face's and CTranslate2's.

    python -m experiments.benchmarks.decoding --table base
    python -m experiments.benchmarks.decoding --table multi30k --workdir W

base: the paper's base model with random weights, a vocabulary of 32,000, beam 4, sources of 32
tokens, outputs of exactly 64, in batches of 8 and 32; sentences a second. Hugging Face's
MarianMT and CTranslate2 have the same weights (Marian's layers differ from the paper's in having
biases in attention); ours are others of the same shape, in float32 and stored and computed in
bfloat16. As lengths are forced, all sides do 64 steps for each batch; which beams move is up to
the weights.

multi30k: the sentences of test_2016_flickr with the model in a workdir, which must be post-norm
with sinusoids. CTranslate2 gets the same weights and the same SentencePiece model, so both sides
translate the same text by the same model and stop by their own rules: CTranslate2 as soon as a
sentence has as many finished hypotheses as beams, which it then compares by log P(Y) / |Y|^alpha.
How many of its lines equal ours is printed. "Once running" is lines a second from text to text
after one pass over all of them; "whole command" is the seconds of a process from its start to
its end, after it has been run once, so with what it caches in place.

CTranslate2 is measured with one worker of two threads and with two workers of one, which then
have a batch each, and on text with several batch sizes; we with one block and with two at once,
which have a batch each too. Ratios are of the best of each side.
Each measurement is a process of its own, in turns, with the same allocator settings and number of
threads; the peers' environment is made when it is absent.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from experiments.benchmarks.rate import per_second
from experiments.benchmarks.shapes import DECODING, SHAPES
from experiments.benchmarks.training import peer_environment, settings
from transduce.environment import ALLOCATOR

SHAPE = SHAPES["base"] | DECODING
LAYOUTS = ((1, 2), (2, 1))
"""CTranslate2's workers, and threads of each."""
TEXT_ROWS = (32, 64, 128)
"""CTranslate2's batch sizes on text."""


@dataclass
class Arguments:
    """Compare decoding throughput."""

    table: Literal["base", "multi30k"] = "base"
    workdir: str = ""
    """Of multi30k: what transduce train made of experiments/multi30k_ende_tiny.py."""
    source: Path = Path("../shared/data/multi30k/raw/test_2016_flickr.en.gz")
    """Of multi30k: what is translated, gzip."""
    batches: tuple[int, ...] = (8, 32)
    """Of base: sentences at a time."""
    rounds: int = 3
    """Measurements of each side, in turns."""
    seconds: float = 10.0
    """Of each measurement at least, in whole batches, after a batch to warm up."""
    peer_python: str = "python3.11"
    """The interpreter from which the peers' environment is made."""
    peers: Path = Path("~/.cache/transduce/peers")
    """The peers' environment."""
    blocks: int = 1
    """Of our side: blocks at work at a time, each with a batch of its own."""
    ours: Literal["", "float32", "bfloat16"] = ""
    """Measure our side in this process and print it: what this program starts itself with."""


@dataclass(frozen=True)
class Side:
    """One thing to measure: a process that prints {column: rate} as its last line."""

    name: str
    variant: str
    command: tuple[str, ...]


def main() -> None:
    asked = tyro.cli(Arguments)
    if asked.ours:
        print(json.dumps(measure_ours(asked)))
        return
    peer = str(peer_environment(asked.peers.expanduser(), asked.peer_python))
    # Both sides inherit it; XLA has as many threads as it has processors.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    os.environ |= settings(2)
    with tempfile.TemporaryDirectory() as folder:
        if asked.table == "base":
            rates = in_turns(base_sides(asked, peer, folder), asked.rounds)
            report(rates, "sentences/s")
            return
        sides, commands = multi30k_sides(asked, peer, folder)
        rates = in_turns(sides, asked.rounds)
        best = report(rates, "lines/s")["once running", "CTranslate2 float32"]
        times = whole_commands(
            {"transduce": commands["transduce"], best.name: commands[best.variant]}, asked.rounds
        )
        for name, values in times.items():
            print(f"{name:<22}whole command {spread(values)} s")
        one, other = (Path(folder, name).read_bytes().split(b"\n") for name in ("ours", "theirs"))
        same = sum(a == b for a, b in zip(one, other, strict=True)) - 1  # after the last "\n"
        print(f"{same} of {len(one) - 1} lines are the same")


def base_sides(asked: Arguments, peer: str, folder: str) -> list[Side]:
    """Makes the peers' models in `folder`."""
    marian, converted = f"{folder}/marian", f"{folder}/ctranslate2"
    run(peer_command(peer, "marian_decoding", "save", shape=SHAPE, folder=marian))
    options: dict[str, Any] = {"shape": SHAPE, "folder": marian}
    run(peer_command(peer, "ctranslate2_decoding", "convert_marian", output=converted, **options))
    how: dict[str, Any] = {"batches": asked.batches, "seconds": asked.seconds}
    sides = [
        Side(f"transduce {dtype}", f"{blocks} at once", our_command(asked, dtype, blocks))
        for dtype in ("float32", "bfloat16")
        for blocks in (1, 2)
    ]
    command = peer_command(peer, "marian_decoding", "measure", **options, **how)
    sides.append(Side("Hugging Face Marian", "", command))
    for kind in ("float32", "int8"):
        for workers, threads in LAYOUTS:
            command = peer_command(
                peer,
                "ctranslate2_decoding",
                "measure_forced",
                shape=SHAPE,
                model=converted,
                compute_type=kind,
                workers=workers,
                threads=threads,
                **how,
            )
            sides.append(Side(f"CTranslate2 {kind}", layout(workers, threads), command))
    return sides


def multi30k_sides(
    asked: Arguments, peer: str, folder: str
) -> tuple[list[Side], dict[str, tuple[str, ...]]]:
    """Sides, and whole commands: ours, and CTranslate2's by variant. Converts the model."""
    if not asked.workdir:
        sys.exit("--table multi30k needs --workdir")
    vocabulary = f"{asked.workdir}/vocabulary.model"
    model, weights = f"{folder}/ctranslate2", f"{folder}/weights.npz"
    search, shape = export(asked.workdir, weights)
    options: dict[str, Any] = {"weights": weights, "vocabulary": vocabulary, **shape}
    run(peer_command(peer, "ctranslate2_decoding", "convert_ours", output=model, **options))
    options = {"source": str(asked.source), "model": model, "vocabulary": vocabulary, **search}
    sides = [Side("transduce float32", "", our_command(asked, "float32"))]
    program = str(Path(sys.executable).with_name("transduce"))
    files = ["--input", str(asked.source), "--output", f"{folder}/ours"]
    # As a user starts it: it starts itself anew with the allocator's settings.
    plain = ["env", *(part for name in ALLOCATOR for part in ("-u", name))]
    commands = {"transduce": (*plain, program, "translate", asked.workdir, *files)}
    for workers, threads in LAYOUTS:
        for rows in TEXT_ROWS:
            variant = f"{layout(workers, threads)}, batches of {rows}"
            how = options | {"workers": workers, "threads": threads, "rows": rows}
            name = "ctranslate2_decoding"
            command = peer_command(peer, name, "measure_text", seconds=asked.seconds, **how)
            sides.append(Side("CTranslate2 float32", variant, command))
            output = f"{folder}/theirs"
            commands[variant] = peer_command(peer, name, "translate_text", output=output, **how)
    return sides, commands


def layout(workers: int, threads: int) -> str:
    return f"{workers} x {threads} threads"


def our_command(asked: Arguments, dtype: str, blocks: int = 1) -> tuple[str, ...]:
    command = [sys.executable, "-m", "experiments.benchmarks.decoding", "--ours", dtype]
    command += ["--blocks", str(blocks)]
    command += ["--table", asked.table, "--seconds", str(asked.seconds)]
    if asked.table == "base":
        return (*command, "--batches", *map(str, asked.batches))
    return (*command, "--workdir", asked.workdir, "--source", str(asked.source))


def peer_command(peer: str, program: str, command: str, **arguments: Any) -> tuple[str, ...]:
    module = f"experiments.benchmarks.peers.{program}"
    return (peer, "-m", module, command, json.dumps(arguments))


def run(command: tuple[str, ...]) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


type Rates = dict[str, dict[Side, list[float]]]
"""By column."""


def in_turns(sides: list[Side], rounds: int) -> Rates:
    rates: Rates = defaultdict(lambda: defaultdict(list))
    for _ in range(rounds):
        for side in sides:
            for column, rate in json.loads(run(side.command).splitlines()[-1]).items():
                rates[column][side].append(rate)
                what = f"{column}, {side.name} {side.variant}"
                print(f"{what:<72}{rate:>10,.2f}", file=sys.stderr)
    return rates


def report(rates: Rates, unit: str) -> dict[tuple[str, str], Side]:
    """Prints medians and ratios; the best variant of each column and name."""
    best: dict[tuple[str, str], Side] = {}
    for column, sides in rates.items():
        print(f"{column}, {unit}, two threads, median (least to most)")
        medians = {side: statistics.median(values) for side, values in sides.items()}
        for side in sorted(medians, key=medians.__getitem__):
            best[column, side.name] = side
            print(f"  {side.name:<22}{side.variant:<28}{spread(sides[side])}")
        names = dict.fromkeys(side.name for side in sides)
        for mine in (name for name in names if name.startswith("transduce")):
            for peer in (name for name in names if not name.startswith("transduce")):
                ratio = medians[best[column, mine]] / medians[best[column, peer]]
                print(f"  {mine} is {ratio:.2f} times {peer}")
    return best


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):>8,.2f} ({min(values):,.2f} to {max(values):,.2f})"


def whole_commands(commands: dict[str, tuple[str, ...]], rounds: int) -> dict[str, list[float]]:
    """Seconds from start to end, in turns."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        run(command)
    for _ in range(rounds):
        for name, command in commands.items():
            began = time.perf_counter()
            run(command)
            times[name].append(time.perf_counter() - began)
            print(f"whole command, {name:<30}{times[name][-1]:>8.2f} s", file=sys.stderr)
    return times


def measure_ours(asked: Arguments) -> dict[str, float]:
    if asked.table == "multi30k":
        return {
            "once running": per_second(ours_on_text(asked.workdir, asked.source), asked.seconds)
        }
    return {
        f"batch {rows}": per_second(ours(asked.ours, rows, asked.blocks), asked.seconds)
        for rows in asked.batches
    }


def ours(dtype: Any, rows: int, blocks: int) -> Callable[[], int]:
    """What translates a batch a block, random sources with random weights; gives the rows back."""
    import jax
    import numpy as np
    from flax import nnx

    from transduce.arrays import EOS
    from transduce.config import ModelConfig
    from transduce.decoding.block import Method
    from transduce.decoding.engine import Engine, Request
    from transduce.decoding.search import Ranking
    from transduce.model.transformer import Transformer, with_dtype

    layers, heads, output = SHAPE["layers"], SHAPE["heads"], SHAPE["output"]
    width = SHAPE["d_model"] // heads
    config = ModelConfig(
        vocabulary_size=SHAPE["vocabulary"],
        encoder_layers=layers,
        decoder_layers=layers,
        d_model=SHAPE["d_model"],
        d_ff=SHAPE["d_ff"],
        heads=heads,
        d_k=width,
        d_v=width,
        unroll=0,
    )
    model = with_dtype(Transformer(config, rngs=nnx.Rngs(0)), dtype)
    method = Method(
        beams=SHAPE["beam"],
        n_best=1,
        vocabulary=config.vocabulary_size,
        ranking=Ranking(penalty="paper", alpha=0.6),
    )
    engine = Engine([model], method, rows=rows, devices=jax.devices()[:1], at_once=blocks)
    generator = np.random.default_rng(0)
    sources = generator.integers(4, config.vocabulary_size, (rows * blocks, SHAPE["source"] - 1))
    shape = (SHAPE["source"], output)
    requests = [
        Request(source=[*row, EOS], shape=shape, limit=output - 1, minimum=output - 1)
        for row in sources.tolist()
    ]

    def translate() -> int:
        found = list(engine.search(requests))
        assert {int(each.lengths[0]) for _, each in found} == {output}
        return len(found)

    return translate


def ours_on_text(workdir: str, source: Path) -> Callable[[], int]:
    """What translates the lines of `source`, from text to text; gives their number back."""
    from transduce.decoding.translator import Translator
    from transduce.decoding.workdir import load
    from transduce.text.lines import read_lines

    trained = load([workdir])
    translator = Translator(trained.models, trained.vocabulary, trained.experiment.search)
    lines = list(read_lines(source))
    return lambda: len([found.hypotheses[0].text for found in translator.translate(lines)])


def export(workdir: str, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Writes a workdir's weights; gives the search's settings and what the weights do not say."""
    import numpy as np

    from transduce.checkpoints import named_arrays
    from transduce.decoding.workdir import load

    trained = load([workdir])
    model, search = trained.models[0].config, trained.experiment.search
    if (model.norm, model.positions) != ("post", "sinusoidal"):
        sys.exit(f"{workdir}: CTranslate2 gets post-norm models with sinusoids alone")
    arrays = {name: np.asarray(leaf) for name, leaf in named_arrays(trained.models[0]).items()}
    np.savez(path, allow_pickle=False, **arrays)
    shape = {"heads": model.heads, "layers": [model.encoder_layers, model.decoder_layers]}
    return {"beam": search.beam, "alpha": search.alpha, "extra_length": search.extra_length}, shape


if __name__ == "__main__":
    main()
