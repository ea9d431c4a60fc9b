"""The verb, its compiler replaced by one that answers at once; one real compilation beside it."""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transduce.config import (
    DataConfig,
    Experiment,
    MeshConfig,
    ModelConfig,
    RequestError,
    VocabularyConfig,
)
from transduce.planning import plans, verb
from transduce.planning.compile import Answer, CompilerFailed, compiled, require_compiler
from transduce.planning.cost import Cost
from transduce.planning.estimate import Estimate, Exchange
from transduce.planning.plans import Plan
from transduce.planning.target import Target, parse_target

from .programs import LOOP

EXPERIMENT = Experiment(
    name="small",
    model=ModelConfig(
        vocabulary_size=64,
        encoder_layers=1,
        decoder_layers=1,
        d_model=128,
        d_ff=128,
        heads=2,
        dtype="bfloat16",
    ),
    data=DataConfig(vocabulary=VocabularyConfig(size=64), rows=16, row_length=128),
)


def answer(target: Target, **changes: Any) -> Answer:
    given: dict[str, Any] = {
        "fits": True,
        "message": "",
        "seconds": 2.0,
        "places": [[i % 2, i // 2, 0] for i in range(target.chips)],
        "state": {"parameters": 100, "optimizer": 200, "average": 0, "batch": 10},
        "memory": {"peak": 2**30, "arguments": 300, "temporaries": 2**29, "code": 5},
        "text": LOOP,
        "matrix_rate": 2e11 if target.kind == "cpu" else 0.0,
    }
    return Answer(**given | changes)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Experiment, Target]]:
    """What the compiler is asked for; it has everything and answers at once."""
    found: list[tuple[Experiment, Target]] = []

    def compile_at_once(experiment: Experiment, target: Target, *, say: Any) -> Answer:
        found.append((experiment, target))
        say("compiling")
        return answer(target)

    monkeypatch.setattr(plans, "compiled", compile_at_once)
    monkeypatch.setattr(verb, "require_compiler", lambda target: None)
    return found


def test_arithmetic_comes_first_and_the_compiler_after(
    asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    verb.plan(EXPERIMENT, on=["tpu-v5e:2x2"], price=1.5)
    out, err = capsys.readouterr()
    assert out.index("by arithmetic, at once") < out.index("compiled in 2 s")
    assert err == "compiling\n"
    assert "mesh data 4" in out
    assert "fits: 1.00 of 16 GiB a chip (compiler)" in out
    # 10,500 cycles of the loop's program at 1.5 GHz, and an all-reduce of 4,000 bytes.
    assert "compiler's cycles 7 us" in out
    assert "all-reduce (compiler) 1 x, 0.0 MB" in out
    assert " at 1.5 a chip-hour" in out


def test_json_has_the_same_and_says_whose_word_it_is(
    asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    verb.plan(EXPERIMENT, on=["tpu-v5e:2x2", "cpu"], style="json", price=2.0)
    tpu, cpu = json.loads(capsys.readouterr().out)
    assert (tpu["chips"], tpu["mesh"]["data"], tpu["fits"], tpu["by"]) == (4, 4, True, "compiler")
    assert tpu["compiler"]["cycles_seconds"] == pytest.approx(10_500 / 1.503e9, rel=1e-3)
    step = tpu["step_seconds"]
    assert tpu["tokens_per_second"] == pytest.approx(16 * 128 / step)
    assert tpu["hours"] == pytest.approx(100_000 * step / 3600)
    assert tpu["money"] == pytest.approx(tpu["hours"] * 4 * 2)
    # On a CPU: FLOPs over the measured rate, arguments and temporaries together.
    assert cpu["step_seconds"] == pytest.approx(cpu["flops"] / 2e11)
    assert cpu["peak_bytes"] == 2**29 + 300
    assert cpu["utilisation"] is None


def test_a_search_compiles_the_best_four_and_the_experiments_own(
    asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    own = replace(EXPERIMENT, mesh=MeshConfig(data=1, context=4))
    verb.plan(own, on=["tpu-v5e:2x2"], search_mesh=True)
    assert len(asked) == 5
    assert (asked[4][0].mesh.data, asked[4][0].mesh.context) == (1, 4)
    out = capsys.readouterr().out
    assert "10 meshes by arithmetic" not in out  # heads do not divide over 4: 9 do
    assert "9 meshes by arithmetic" in out
    assert "tpu-v5e:2x2, compiled" in out


def test_too_little_memory_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def short(experiment: Experiment, target: Target, *, say: Any) -> Answer:
        message = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.1G of 15.7G"
        return answer(target, fits=False, message=message, memory={}, text="")

    monkeypatch.setattr(plans, "compiled", short)
    verb.plan(EXPERIMENT, on=["tpu-v5e:2x2"])
    out = capsys.readouterr().out
    assert "does not fit (compiler)" in out
    assert "Used 20.1G of 15.7G" in out
    assert "training.remat" in out
    verb.plan(EXPERIMENT, on=["tpu-v5e:2x2"], style="json")
    (found,) = json.loads(capsys.readouterr().out)
    assert found["fits"] is False


def test_a_compiler_that_fails_ends_with_status_1_after_the_others(
    monkeypatch: pytest.MonkeyPatch, asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(experiment: Experiment, target: Target, *, say: Any) -> Answer:
        if target.name == "cpu":
            raise CompilerFailed("cpu: the compiler ended with status -11")
        return answer(target)

    monkeypatch.setattr(plans, "compiled", fails)
    with pytest.raises(SystemExit, match="1"):
        verb.plan(EXPERIMENT, on=["cpu", "tpu-v5e:2x2"])
    out, err = capsys.readouterr()
    assert "status -11" in err
    assert "compiled in 2 s" in out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"on": []}, "--on must name a machine"),
        ({"on": ["tpu-v5e:3x3"]}, "slices of v5e"),
        ({"on": ["tpu-v5e:8x8"]}, r"data.rows \(16\) .* \(64\): 64 would"),
        ({"on": ["h200:8"], "price": -1.0}, "--price must be positive, not -1"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_compiled(
    asked: list[Any], changes: dict[str, Any], message: str
) -> None:
    """One wrong target among several is enough."""
    on = changes["on"] and ["cpu", *changes["on"]]
    with pytest.raises(RequestError, match=message):
        verb.plan(EXPERIMENT, on=on, price=changes.get("price"))
    assert asked == []


def test_a_missing_compiler_is_named_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RequestError, match=r"pip install -e \.\[tpu\]"):
        require_compiler(parse_target("tpu-v5e:2x2"))
    with pytest.raises(RequestError, match=r"pip install -e \.\[cuda\]"):
        require_compiler(parse_target("h200:8"))
    monkeypatch.setenv("TPU_LIBRARY_PATH", "/no/libtpu.so")
    with pytest.raises(RequestError, match=r"TPU_LIBRARY_PATH is /no/libtpu\.so: no"):
        require_compiler(parse_target("tpu-v5e:2x2"))


def test_the_compiler_ends_when_who_started_it_is_gone() -> None:
    """It holds standard output until it ends."""
    program = (
        "import os; from transduce.planning.compile import _end_with; parent = os.getpid()\n"
        "if os.fork() == 0: _end_with(parent)\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, timeout=60)


@pytest.mark.parametrize(
    ("on", "cost", "expected"),
    [
        # By arithmetic 5 ms of products, 2 of them again, 4 of traffic, 6 of collectives.
        ("h200:8", None, "compute"),
        ("h200:8", Cost(waited=8e-3), "interconnect"),
        ("tpu-v5e:2x2", Cost(compiled=7e-3, waited=6e-3), "compute"),
        ("tpu-v5e:2x2", Cost(compiled=5e-3, waited=6e-3), "interconnect"),
        ("cpu", None, None),
    ],
)
def test_what_binds_is_what_most_of_the_time_goes_on(
    on: str, cost: Cost | None, expected: str | None
) -> None:
    exchange = Exchange(what="", kind="all-reduce", axes=("data",), bytes=1.0, seconds=6e-3)
    times = Estimate(
        memory={"parameters": 1.0, "optimizer": 2.0, "average": 0.0},
        flops=1.0,
        compute=5e-3,
        again=2e-3,
        traffic=4e-3,
        exchanges=(exchange,),
    )
    plan = Plan(experiment=EXPERIMENT, target=parse_target(on), estimate=times, cost=cost)
    assert plan.binds == expected


@pytest.mark.slow
def test_a_step_is_compiled_for_this_cpu(capfd: pytest.CaptureFixture[str]) -> None:
    """State by hand: 4 bytes a parameter, 8 for Adam's moments, three arrays for either side."""
    from transduce.model.arithmetic import parameters

    found = compiled(EXPERIMENT, parse_target("cpu"))
    count = parameters(EXPERIMENT.model).total
    assert found.fits
    assert found.state["parameters"] == 4 * count
    assert found.state["optimizer"] - 8 * count < 100  # and its counts of updates
    assert found.state["batch"] == 6 * 16 * 128 * 4
    assert found.matrix_rate > 1e9
    assert "ENTRY" in found.text
    assert capfd.readouterr().out == ""


@pytest.mark.tpu
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None and not os.environ.get("TPU_LIBRARY_PATH"),
    reason="libtpu, the compiler for TPUs, is not installed: make tpu",
)
def test_a_small_experiment_is_compiled_for_a_tpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verb.plan(EXPERIMENT, on=["tpu-v5e:2x2"], style="json")
    (found,) = json.loads(capsys.readouterr().out)
    assert found["fits"]
    assert found["compiler"]["cycles_seconds"] > 0
    assert "all-reduce" in found["compiler"]["collectives"]
    # All gradients, in bfloat16, and little beside them.
    from transduce.model.arithmetic import parameters

    summed = found["compiler"]["collectives"]["all-reduce"]["bytes"]
    assert 2 * parameters(EXPERIMENT.model).total <= summed
    assert found["arithmetic"]["not_understood"] == []
