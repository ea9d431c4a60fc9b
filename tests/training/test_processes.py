"""Training and decoding in several processes give what one process gives."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from transduce.config import Experiment, RequestError
from transduce.parallel import hosts
from transduce.training.agreement import Agreement
from transduce.workdir import Workdir

from ..parallel.processes import Ended, run_together
from .examples import (
    COMPILED,
    PAIRS,
    assert_same_state,
    experiment_in,
    records,
    steps,
    write,
    write_experiment,
)

RUN = "from transduce.cli import main; main()"

SIGNALLED = """
import os, signal, sys
from transduce.cli import main
from transduce.parallel import hosts
from transduce.training.assess import Assessment
from transduce.training.window import Window

where, step, index = sys.argv.pop(), int(sys.argv.pop()), int(sys.argv.pop())

def signalled(method):
    def call(self, *arguments, **named):
        global done
        done += 1
        if (done, hosts.process()[0]) == (step, index):
            os.kill(os.getpid(), signal.SIGTERM)
        return method(self, *arguments, **named)
    return call

done = 0
owner, name = {"update": (Window, "add"), "evaluation": (Assessment, "_translate")}[where]
setattr(owner, name, signalled(getattr(owner, name)))
main()
"""


@dataclass(frozen=True)
class Place:
    """A folder with an experiment of ten updates, and the runs in it."""

    folder: Path
    experiment: Experiment

    def train(
        self, workdir: str, *options: str, count: int, devices: int = 1, cut: str = ""
    ) -> list[Ended]:
        arguments = ["train", str(self.folder / "experiment.py"), "--workdir"]
        arguments += [str(self.folder / workdir), *options, *cut.split()]
        program = SIGNALLED if cut else RUN
        return run_together(program, *arguments, count=count, devices=devices, seconds=300)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("processes")
    small = experiment_in(folder)
    training = replace(small.training, steps=10, log_every=4, evaluate_every=5, save_every=100)
    # Eleven sentences of dev and six of test: unequal shares for two processes and for four.
    experiment = replace(
        small,
        data=replace(small.data, readers=4),
        training=replace(training, evaluation_sentences=11),
    )
    write_experiment(folder / "experiment.py", experiment)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSDUCE_CACHE", str(folder / "cache"))
        patch.setenv("TRANSDUCE_MALLOC", "0")
        # What is compiled for several processes is kept for the first alone.
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(folder / "compiled"))
        for name, value in COMPILED.items():
            patch.setenv(name.upper(), str(value))
        yield Place(folder, experiment)


def assert_ended(processes: list[Ended], status: int = 0) -> None:
    """All with `status`; the first alone has said something, and not on standard output."""
    assert [process.status for process in processes] == [status] * len(processes), processes
    assert [process.output for process in processes] == [""] * len(processes)
    for other in processes[1:]:
        lines = [line for line in other.error.splitlines() if not line.startswith("[Gloo]")]
        assert len(lines) == (status != 0), other.error


def assert_same_run(place: Place, one: str, other: str) -> None:
    """To the bit: the state at the end, and what was found out on the way."""
    left, right = place.folder / one, place.folder / other
    assert steps(left) == steps(right) == [10]
    assert_same_state(place.experiment, left, right, 10)
    for kind in ("dev", "test"):
        found, expected = records(left, kind), records(right, kind)
        for record in [*found, *expected]:
            del record["time"], record["seconds"]
        assert found == expected != []
    names = {path.name for path in (right / "translations").iterdir()}
    assert names == {"dev-5.txt", "dev-10.txt", "test-10.txt"}
    for name in names:
        text = (left / "translations" / name).read_bytes()
        assert text == (right / "translations" / name).read_bytes()
        assert text.count(b"\n") == (6 if name.startswith("test") else 11)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "options"),
    [
        # Both have the same rows, one of them the first half of their positions ...
        (2, "--mesh.context=2"),
        # ... or half of the heads, of the feed-forward width and of the vocabulary.
        (2, "--mesh.tensor=2"),
        # Two and two have the same rows.
        (4, "--mesh.data=2 --mesh.tensor=2"),
        (4, "--mesh.fsdp=2 --mesh.context=2"),
        # Each has half of a reader's rows.
        (2, "--data.readers=1"),
    ],
)
def test_processes_give_what_as_many_devices_of_one_give(
    place: Place, count: int, options: str
) -> None:
    """R6, R9: dropout is on; each sentence of dev and test counts once."""
    together, alone = (f"{how}{options.replace(' ', '')}" for how in ("together", "alone"))
    assert_ended(place.train(together, *options.split(), count=count))
    assert_ended(place.train(alone, *options.split(), count=1, devices=count))
    assert_same_run(place, together, alone)


@pytest.mark.slow
def test_a_run_goes_on_with_other_processes_after_a_signal_to_any(place: Place) -> None:
    """R9: cut in an update, cut in an evaluation, and then in one process."""
    assert_ended(place.train("uncut", count=1, devices=2))
    cut = place.folder / "cut"
    # What one process hears during an update the others know after the next.
    ended = place.train("cut", count=2, cut="1 3 update")
    assert_ended(ended, 75)
    assert "SIGTERM: stopped after update 4, which is saved" in ended[0].error
    assert steps(cut) == [4]
    ended = place.train("cut", count=2, cut="1 1 evaluation")
    assert_ended(ended, 75)
    assert steps(cut) == [5]
    assert records(cut, "dev") == []
    assert_ended(place.train("cut", count=1, devices=2))
    assert_same_run(place, "cut", "uncut")


@pytest.mark.slow
def test_processes_translate_as_one_does(place: Place) -> None:
    ended = place.train("decoded", "--training.minutes=1e-9", count=2)
    assert_ended(ended)
    # That the time is over, too, they all know one update later.
    assert "Ended     after update 2: training.minutes is 1e-09" in ended[0].error
    source = place.folder / "source"
    write(source, [*(text for text, _ in PAIRS[:37]), "", "a lamp"])
    arguments = ["translate", str(place.folder / "decoded"), "--input", str(source)]
    arguments += ["--batch-size", "20", "--format", "jsonl"]
    (alone,) = run_together(RUN, *arguments, count=1)
    assert (alone.status, alone.output.count("\n")) == (0, 39), alone.error
    for count in (2, 4):
        together = run_together(RUN, *arguments, count=count, seconds=300)
        assert [process.status for process in together] == [0] * count, together
        assert [process.output for process in together] == [alone.output, *[""] * (count - 1)]


def test_what_the_first_process_refuses_all_refuse(place: Place) -> None:
    (place.folder / "taken").mkdir()
    write(place.folder / "taken" / "file", ["somebody's"])
    ended = place.train("taken", count=2)
    assert_ended(ended, 2)
    for process in ended:
        (line,) = process.error.splitlines()
        assert line.startswith(f"transduce: {place.folder / 'taken'}: neither empty nor a workdir")


def test_processes_that_read_other_data_are_refused(
    place: Place, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when each host has files of its own under the same name."""
    workdir = Workdir.of(str(tmp_path))
    other = {"corpora": {"small/train": "1", "small/dev": "3"}, "vocabulary": "v"}
    monkeypatch.setattr(hosts, "gather_bytes", lambda data: [data, json.dumps(other).encode()])
    message = "process 1 reads other data than the first: corpus split small/dev; all must"
    with pytest.raises(RequestError, match=message):
        workdir.settle(
            place.experiment, corpora={"small/train": "1", "small/dev": "2"}, vocabulary="v"
        )
    assert list(tmp_path.iterdir()) == []


def test_one_process_agrees_with_itself_at_once() -> None:
    agree = Agreement()
    assert agree(0, 1) == (0, 1)
    assert agree(15, 0) == (15, 0)


AGREE = """
import json
from transduce.parallel import hosts
hosts.initialize()
from transduce.training.agreement import Agreement
index, _ = hosts.process()
agree = Agreement()
found = [agree(*numbers[index]) for numbers in [[(0, 0), (0, 1)], [(2, 0), (15, 0)], [(0, 0)] * 2]]
hosts.barrier("end")
print(json.dumps(found))
"""


def test_processes_learn_at_a_call_what_was_given_at_the_one_before() -> None:
    for process in run_together(AGREE, count=2, devices=2):
        assert process.output == "[[0, 0], [0, 1], [15, 0]]\n", process.error
