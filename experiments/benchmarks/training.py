"""Training throughput beside Hugging Face's MarianMT and Joey NMT.

    python -m experiments.benchmarks.training --shape tiny
    python -m experiments.benchmarks.training --shape tiny --text

Real target tokens a second of the whole update: forward, backward, dropout 0.1, label smoothing
0.1, Adam; float32. Rows are full of random ids or, with --text, made of Multi30k's training
sentences, the same ids on all sides, tokenised before: ours packed, the peers' padded, each in the
peer's own way (peers/padded.py), all with about as many tokens a batch, padding included.

Each side runs in a process of its own, in turns, with the same allocator settings and number of
threads; the peers' environments are made when they are absent. Of full rows, our model FLOP/s
(model/arithmetic.py) are also given as a share of the rate of products of 2,048 x 2,048 matrices,
measured in the same turns.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from experiments.benchmarks.peers.padded import write
from experiments.benchmarks.rate import matrix_products, measured
from experiments.benchmarks.shapes import SHAPES

if TYPE_CHECKING:
    from transduce.config import DataConfig, Experiment

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "peers" / "requirements.txt"
JOEYNMT = HERE / "peers" / "joeynmt.txt"
PIECES = 8000
"""Of the vocabulary that --text trains, on either shape: less than the tables have rows."""
PRODUCTS = "products of matrices"
WARM = 4
"""Updates before the measured ones at least: until then memory is asked of the system."""


@dataclass
class Arguments:
    """Compare training throughput."""

    shape: Literal["tiny", "base"] = "tiny"
    text: bool = False
    """Multi30k's sentences, not full rows."""
    rounds: int = 3
    """Measurements of each side, in turns."""
    seconds: float = 20.0
    """Of each measurement at least, in whole updates, after some to warm up."""
    threads: int = 2
    peer_python: str = "python3.11"
    """The interpreter from which the peers' environments are made."""
    peers: Path = Path("~/.cache/transduce/peers")
    """The peers' environments."""
    ours: str = ""
    """Do this work, a JSON object, in this process: what this program starts itself with."""


def main() -> None:
    asked = tyro.cli(Arguments)
    if asked.ours:
        print(json.dumps(measure_ours(json.loads(asked.ours))))
        return
    restrict(asked.threads)
    with tempfile.TemporaryDirectory() as folder:
        work = work_of(asked.shape, asked.seconds, folder if asked.text else "")
        sides = sides_of(work, asked.peers.expanduser(), asked.peer_python)
        if not asked.text:
            product = work | {"product": True}
            sides[PRODUCTS] = our_command(product)
        answers = in_turns(sides, asked.rounds)
    report(asked, answers)


def restrict(threads: int) -> None:
    """This process' and its children's processors, and their settings."""
    # XLA has as many threads as it has processors.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    os.environ |= settings(threads)


def settings(threads: int) -> dict[str, str]:
    """The same for every side: threads, and the allocator as `transduce` sets it."""
    from transduce.environment import ALLOCATOR

    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        **ALLOCATOR,
    }


def work_of(shape: str, seconds: float, folder: str, *, remat: str = "none") -> dict[str, Any]:
    """What every side is asked to do; with a `folder`, on sentences, which are prepared in it.

    `remat` is for our side alone.
    """
    pairs = vocabulary = ""
    if folder:
        pairs, vocabulary = f"{folder}/pairs.npz", f"{folder}/vocabulary.model"
        write(pairs, tokenized_pairs(data_config(SHAPES[shape]), vocabulary))
    return {
        "shape": SHAPES[shape],
        "seconds": seconds,
        "warm": WARM,
        "pairs": pairs,
        "vocabulary": vocabulary,
        "remat": remat,
    }


def sides_of(work: dict[str, Any], peers: Path, python: str) -> dict[str, list[str]]:
    """The commands of ours and of the peers."""
    marian = peer_environment(peers, python)
    joeynmt = peer_environment(peers / "joeynmt", python, JOEYNMT)
    module = "experiments.benchmarks.peers"
    return {
        "transduce": our_command(work),
        "Hugging Face Marian": [
            str(marian),
            *("-m", f"{module}.marian_training", json.dumps(work)),
        ],
        "Joey NMT": [str(joeynmt), *("-m", f"{module}.joeynmt_training", json.dumps(work))],
    }


def our_command(work: dict[str, Any]) -> list[str]:
    return [
        *(sys.executable, "-m", "experiments.benchmarks.training"),
        *("--ours", json.dumps(work)),
    ]


type Answers = dict[str, list[dict[str, float]]]
"""What each side said in each turn: rate.py's `measured`."""


def in_turns(sides: dict[str, list[str]], rounds: int) -> Answers:
    answers: Answers = {name: [] for name in sides}
    for _ in range(rounds):
        for name, command in sides.items():
            answers[name].append(answer(command))
            rates = "".join(f"{key} {value:,.0f}  " for key, value in answers[name][-1].items())
            print(f"{name:<22}{rates}", file=sys.stderr)
    return answers


def answer(command: list[str], environment: dict[str, str] | None = None) -> dict[str, float]:
    """What a side prints last; `environment` is added to this process'."""
    printed = subprocess.run(
        command,
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return json.loads(printed.splitlines()[-1])


def report(asked: Arguments, answers: Answers) -> None:
    what = "Multi30k" if asked.text else "full rows"
    print(
        f"{asked.shape}, {what}, {asked.threads} threads, target tokens, median of {asked.rounds} "
        "(least to most)"
    )
    for key, unit in (("per_second", "s"), ("per_processor_second", "s of a processor")):
        rates = {name: [each[key] for each in said] for name, said in answers.items()}
        medians = {name: statistics.median(values) for name, values in rates.items()}
        product = medians.pop(PRODUCTS, None)
        for name, median in medians.items():
            ratio = medians["transduce"] / median
            print(
                f"{name:<22}{median:>10,.0f} / {unit} "
                f"({min(rates[name]):,.0f} to {max(rates[name]):,.0f})  "
                f"transduce is {ratio:.2f} times this"
            )
        if product:
            rate = medians["transduce"] * flops_of_a_token(SHAPES[asked.shape])
            print(
                f"transduce: {rate / 1e9:,.0f} GFLOP / {unit}, {rate / product:.0%} of the "
                f"{product / 1e9:,.0f} of {PRODUCTS}"
            )


def peer_environment(folder: Path, python: str, requirements: Path = REQUIREMENTS) -> Path:
    """The interpreter of the environment with a peer's pinned versions."""
    interpreter = folder / "bin" / "python"
    ready = folder / requirements.name
    if not ready.exists() or ready.read_text() != requirements.read_text():
        print(f"making {folder}", file=sys.stderr)
        subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(interpreter), "-m", "pip", "install", "--quiet", "-r", str(requirements)]
        subprocess.run(install, check=True, stdout=sys.stderr)
        ready.write_text(requirements.read_text())
    return interpreter


def flops_of_a_token(shape: dict[str, int]) -> float:
    """Of an update on full rows, for each target token."""
    from transduce.model.arithmetic import training_flops

    length = shape["length"]
    flops = training_flops(
        experiment_of(shape).model, rows=1, source_length=length, target_length=length
    )
    return flops.total / length


def experiment_of(shape: dict[str, int], *, remat: Any = "none") -> "Experiment":
    from transduce.config import Experiment, ModelConfig, TrainingConfig

    width = shape["d_model"] // shape["heads"]
    return Experiment(
        name="benchmark",
        model=ModelConfig(
            vocabulary_size=shape["vocabulary"],
            encoder_layers=shape["layers"],
            decoder_layers=shape["layers"],
            d_model=shape["d_model"],
            d_ff=shape["d_ff"],
            heads=shape["heads"],
            d_k=width,
            d_v=width,
            unroll=0,
        ),
        data=data_config(shape),
        training=TrainingConfig(remat=remat),
    )


def data_config(shape: dict[str, int]) -> "DataConfig":
    from transduce.config import CorpusConfig, DataConfig, VocabularyConfig

    def files(split: str) -> tuple[str, str]:
        return f"multi30k/raw/{split}.en.gz", f"multi30k/raw/{split}.de.gz"

    return DataConfig(
        corpora=(
            CorpusConfig(
                name="multi30k_ende",
                source_language="en",
                target_language="de",
                train=files("train"),
                dev=files("val"),
            ),
        ),
        vocabulary=VocabularyConfig(size=PIECES),
        readers=8,
        # Rows of several sentences: in shorter ones more would stay empty.
        rows=shape["rows"] * shape["length"] // 64,
        row_length=64,
        pretokenized=True,
    )


def tokenized_pairs(config: "DataConfig", vocabulary: str) -> list[Any]:
    """The ids of the training pairs that fit our rows; trains the vocabulary."""
    from etils import epath

    from transduce.pipeline.data import prepare_data

    data = prepare_data(
        config, vocabulary_path=epath.Path(vocabulary), vocabulary_rows=config.vocabulary.size
    )
    (corpus,) = data.training
    rows: list[Any] = [corpus.source[int(index)] for index in corpus.kept]
    return [(row["source"], row["target"]) for row in rows]


def measure_ours(work: dict[str, Any]) -> dict[str, float]:
    """Our updates, after some to warm up; or the rate of products of matrices."""
    if work.get("product"):
        return matrix_products(work["seconds"] / 4)
    return measured(our_update(work), work["seconds"], warm=work["warm"])


def our_update(work: dict[str, Any]) -> Callable[[], int]:
    """What does one update and gives its real target tokens back."""
    import jax
    import numpy as np

    from transduce.parallel.mesh import make_mesh
    from transduce.training.step import compile_train_step, initial_state_on

    experiment = experiment_of(work["shape"], remat=work["remat"])
    mesh = make_mesh(experiment.mesh, jax.devices()[:1])
    batches = our_batches(experiment, mesh, work)
    state = initial_state_on(experiment, mesh)
    step = compile_train_step(experiment, mesh, state, next(batches))

    def update() -> int:
        nonlocal state
        batch = next(batches)
        state, metrics = step(state, batch)
        jax.block_until_ready(metrics)
        return int(np.asarray(metrics.sums.tokens))

    return update


def our_batches(experiment: "Experiment", mesh: Any, work: dict[str, Any]) -> Any:
    """Endless: packed sentences, or one batch of full rows of random ids."""
    import numpy as np
    from etils import epath

    from transduce.arrays import Batch, Tokens
    from transduce.parallel.mesh import place

    if work["pairs"]:
        from transduce.pipeline.batches import TrainingBatches
        from transduce.pipeline.data import prepare_data

        data = prepare_data(
            experiment.data,
            vocabulary_path=epath.Path(work["vocabulary"]),
            vocabulary_rows=experiment.model.vocabulary_size,
        )
        return TrainingBatches(
            data.training,
            data.vocabulary,
            experiment.data,
            place=lambda batch: place(mesh, batch),
        )
    shape = work["shape"]
    generator = np.random.default_rng(0)

    def full_rows() -> Tokens:
        size = (shape["rows"], shape["length"])
        ids = generator.integers(4, shape["vocabulary"], size).astype(np.int32)
        positions = np.tile(np.arange(size[1], dtype=np.int32), (size[0], 1))
        segments = np.ones_like(ids)
        return Tokens(ids=ids, segments=segments, positions=positions)  # pyright: ignore[reportArgumentType] numpy until it is placed

    return itertools.repeat(place(mesh, Batch(source=full_rows(), target=full_rows())))


if __name__ == "__main__":
    main()
