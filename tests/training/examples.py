"""A small experiment that learns a little in a few seconds, and what is in its workdir."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from transduce.checkpoints import Checkpoints, named_arrays
from transduce.config import (
    CorpusConfig,
    DataConfig,
    Experiment,
    ModelConfig,
    OptimizerConfig,
    SearchConfig,
    TrainingConfig,
    VocabularyConfig,
)
from transduce.config_files import to_json
from transduce.parallel.mesh import make_mesh
from transduce.training import loop
from transduce.training.objective import Sums
from transduce.training.step import StepMetrics, abstract_state
from transduce.workdir import Workdir

COMPILED = {
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
"""Settings with which JAX keeps every program that it compiles."""

ADJECTIVES = {"red": "rote", "old": "alte", "small": "kleine", "new": "neue"}
NOUNS = {"lamp": "Lampe", "door": "Tür", "cat": "Katze", "street": "Straße", "clock": "Uhr"}
PAIRS = [
    (f"the {adjective} {noun} is {other}", f"die {german} {nomen} ist {ander}")
    for adjective, german in ADJECTIVES.items()
    for noun, nomen in NOUNS.items()
    for other, ander in ADJECTIVES.items()
    if other != adjective
]

EXPERIMENT = Experiment(
    name="small",
    model=ModelConfig(
        vocabulary_size=300,
        encoder_layers=1,
        decoder_layers=1,
        d_model=32,
        d_ff=32,
        heads=2,
        d_k=8,
        d_v=8,
    ),
    data=DataConfig(
        vocabulary=VocabularyConfig(size=296),
        readers=2,
        rows=8,
        row_length=32,
        packing_bins=4,
    ),
    optimizer=OptimizerConfig(warmup_steps=20, peak_learning_rate=0.01),
    training=TrainingConfig(
        steps=120,
        label_smoothing=0.0,
        log_every=30,
        evaluate_every=60,
        evaluation_sentences=12,
        save_every=30,
        keep=2,
        samples=2,
        ema_decay=0.9,
    ),
    search=SearchConfig(beam=2, extra_length=8, block_rows=8),
)


def write(path: Path, lines: Sequence[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


def experiment_in(folder: Path) -> Experiment:
    """EXPERIMENT with files in `folder`: every fifth pair is dev, the first six of them test."""
    held_out = PAIRS[::5]
    splits = {"train": [p for p in PAIRS if p not in held_out], "dev": held_out}
    splits["test"] = held_out[:6]
    for split, pairs in splits.items():
        write(folder / f"{split}.en", [source for source, _ in pairs])
        write(folder / f"{split}.de", [target for _, target in pairs])

    def files(split: str) -> tuple[str, str]:
        return f"{split}.en", f"{split}.de"

    corpus = CorpusConfig(
        name="small",
        source_language="en",
        target_language="de",
        train=files("train"),
        dev=files("dev"),
        test=files("test"),
    )
    return replace(EXPERIMENT, data=replace(EXPERIMENT.data, corpora=(corpus,), folder=str(folder)))


def write_experiment(path: Path, experiment: Experiment) -> None:
    """A file that `transduce train` reads."""
    json = path.with_suffix(".json")
    json.write_text(to_json(experiment))
    path.write_text(
        "from pathlib import Path\n\n"
        "from transduce.config_files import from_json\n\n\n"
        "def experiment():\n"
        f"    return from_json(Path({str(json)!r}).read_text(), origin='here')\n"
    )


@contextmanager
def on_one_device(cache: Path) -> Iterator[None]:
    """Training as in a process of its own, which has one device; prepared corpora in `cache`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSDUCE_CACHE", str(cache))
        patch.setattr(loop, "make_mesh", partial(make_mesh, devices=jax.devices()[:1]))
        yield


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def metrics(*, loss: Any = 1.0, pairs: Any = 1.0) -> StepMetrics:
    """Of an update that did nothing, for tests that do without training."""
    one: Any = 1.0
    zero: Any = 0.0
    sums = Sums(
        loss=loss,
        log_loss=one,
        tokens=one,
        source_tokens=one,
        pairs=pairs,
        missed=zero,
        aligned=zero,
    )
    return StepMetrics(sums=sums, gradient_norm=one, learning_rate=one)


class Update:
    """Stands for a compiled training step: what it does, and that it needs no memory."""

    def __init__(self, function: Callable[[Any, Any], Any]):
        self._function = function

    def __call__(self, state: Any, batch: Any) -> Any:
        return self._function(state, batch)

    def memory_analysis(self) -> Any:
        return SimpleNamespace(temp_size_in_bytes=0, peak_memory_in_bytes=0)


# ---- What is in a workdir ----------------------------------------------------------------------


def records(workdir: Path, kind: str) -> list[dict[str, Any]]:
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def steps(workdir: Path) -> list[int]:
    return sorted(int(path.name) for path in (workdir / "checkpoints").iterdir())


def state(experiment: Experiment, workdir: Path, step: int) -> tuple[dict[str, Any], Any, Any]:
    """A checkpoint's arrays by name, the pipeline's state, and the progress without its time."""
    like = abstract_state(experiment, make_mesh(experiment.mesh, jax.devices()[:1]))
    with Checkpoints(Workdir.of(str(workdir)), keep=9) as checkpoints:
        restored, pipeline, progress = checkpoints.restore(step, like)
    progress.pop("seconds")
    progress.pop("apart")
    return named_arrays(restored), pipeline, progress


def assert_same_state(experiment: Experiment, left: Path, right: Path, step: int) -> None:
    """To the bit: parameters, their average, optimiser, step, data and progress."""
    (found, *others), (expected, *other_expected) = (
        state(experiment, workdir, step) for workdir in (left, right)
    )
    assert others == other_expected
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


# ---- A process of its own ----------------------------------------------------------------------

RUN = "import sys; from transduce.cli import run; sys.exit(run(sys.argv[1:]))"


def start(
    arguments: Sequence[str], *, cache: Path, compiled: Path, program: str = RUN
) -> subprocess.Popen[str]:
    """`transduce` with `arguments`; any warning ends it with an error."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "XLA_FLAGS"},
        "TRANSDUCE_CACHE": str(cache),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(compiled),
        **{name.upper(): str(value) for name, value in COMPILED.items()},
    }
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
