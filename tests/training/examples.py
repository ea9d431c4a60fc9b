"""A small experiment that learns a little in a few seconds."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import pytest

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
