"""Compiles an experiment's training step for a machine that is not here: a process of its own.

    python -m transduce.planning.compile < REQUEST > ANSWER

Compilers for TPUs and GPUs are set up by the environment when their process starts, and may end it
when they fail; so each target gets one, which `compiled` starts and reads. Request and answer are
JSON.
"""

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from transduce.config import Experiment, RequestError
from transduce.config_files import from_json, to_json
from transduce.planning.target import Target, parse_target

ENVIRONMENTS: dict[str, dict[str, str]] = {
    "tpu": {
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        # Asked for by libtpu even where no TPU is to be touched.
        "TPU_ACCELERATOR_TYPE": "v5p-8",
        "TPU_WORKER_HOSTNAMES": "localhost",
    },
    "gpu": {
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        # Choosing kernels by trying them needs a GPU.
        "XLA_FLAGS": "--xla_gpu_autotune_level=0",
    },
    "cpu": {},
}

TICK = 15.0
"""Seconds between two signs of life."""


class CompilerFailed(Exception):
    """The compiler ended with something else than a program or a lack of memory."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of compiling; bytes and seconds are those of one chip."""

    fits: bool
    message: str
    """The compiler's, where it found too little memory."""
    seconds: float
    """That compiling took."""
    places: list[list[int]]
    """Of the mesh's devices, in order."""
    state: dict[str, int]
    """Bytes of parameters, optimizer, average and batch."""
    memory: dict[str, int]
    """The compiler's: peak, arguments, temporaries, code."""
    text: str
    """The program's, where it is wanted."""
    matrix_rate: float
    """Measured, on a CPU; else 0."""


def require_compiler(target: Target) -> None:
    """Raises `RequestError` where the compiler for `target` is not installed."""
    needed, extra = {
        "tpu": ("libtpu", "tpu"),
        "gpu": ("jax_plugins.xla_cuda13", "cuda"),
        "cpu": ("jax", ""),
    }[target.kind]
    try:
        present = importlib.util.find_spec(needed) is not None
    except ModuleNotFoundError:
        present = False
    library = os.environ.get("TPU_LIBRARY_PATH") if target.kind == "tpu" else None
    if library and not os.path.isfile(library):
        raise RequestError(f"--on {target.name}: TPU_LIBRARY_PATH is {library}: no such file")
    if not present and not library:
        raise RequestError(
            f"--on {target.name} needs the compiler for it: pip install -e .[{extra}]"
        )


def compiled(
    experiment: Experiment, target: Target, *, say: Callable[[str], None] = lambda line: None
) -> Answer:
    """Compiles in a new process; `say` is told how it goes.

    Raises `RequestError` when the experiment does not fit the target, `CompilerFailed` when the
    compiler fails otherwise.
    """
    request = json.dumps({"experiment": to_json(experiment), "target": target.name})
    environment = dict(os.environ)
    environment |= ENVIRONMENTS[target.kind] | {
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    if target.kind == "gpu" and (flags := os.environ.get("XLA_FLAGS")):
        environment["XLA_FLAGS"] += f" {flags}"
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "transduce.planning.compile"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            to_send: str | None = request
            while True:
                try:
                    output, errors = process.communicate(to_send, timeout=TICK)
                    break
                except subprocess.TimeoutExpired:
                    to_send = None
                    say(f"{target.name}: compiling, {time.monotonic() - began:.0f} s")
        except BaseException:
            process.kill()
            raise
    if process.returncode or not output:
        last = [line for line in errors.splitlines() if line.strip()][-3:]
        raise CompilerFailed(
            f"{target.name}: the compiler ended with status {process.returncode}: "
            + " | ".join(last)
        )
    answer = json.loads(output)
    if "refused" in answer:
        raise RequestError(f"--on {target.name}: {answer['refused']}")
    return Answer(**answer)


def main() -> None:
    """Reads a request and writes the answer."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    request = json.load(sys.stdin)
    # Compilers print to standard output too, some below Python: the answer goes where it went.
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    experiment = from_json(request["experiment"], origin="the experiment")
    try:
        answer = asdict(_compile(experiment, parse_target(request["target"])))
    except RequestError as error:
        answer = {"refused": str(error)}
    with results:
        json.dump(answer, results)
    # A compiler's threads may hold the process up, or fail, at an ordered end.
    sys.stderr.flush()
    os._exit(0)


def _end_with(parent: int) -> None:
    """A compiler would go on for minutes when who asked for it was killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _compile(experiment: Experiment, target: Target) -> Answer:
    import jax
    import jax.numpy as jnp

    from transduce.arrays import Batch, Tokens
    from transduce.parallel.mesh import batch_sharding, make_mesh
    from transduce.training.step import abstract_state, compile_train_step

    mesh = make_mesh(experiment.mesh, devices_of(target))
    state = abstract_state(experiment, mesh)
    ids: Any = jax.ShapeDtypeStruct(
        (experiment.data.rows, experiment.data.row_length),
        jnp.int32,
        sharding=batch_sharding(mesh),
    )
    words = ids if experiment.data.is_of_trees else None
    side = Tokens(ids=ids, segments=ids, positions=ids, words=words)
    batch = Batch(source=side, target=side)
    known = {
        "parameters": _bytes_on_a_chip(state.model),
        "optimizer": _bytes_on_a_chip(state.optimizer),
        "average": _bytes_on_a_chip(state.ema),
        "batch": _bytes_on_a_chip(batch),
    }
    places: list[list[int]] = [
        list(getattr(device, "coords", (0,))) for device in mesh.devices.flat
    ]
    began, message, program = time.monotonic(), "", None
    try:
        program = compile_train_step(experiment, mesh, state, batch)
    except jax.errors.JaxRuntimeError as error:
        if not re.search("RESOURCE_EXHAUSTED|out of memory|Oom", str(error)):
            raise
        message = str(error)
    seconds = time.monotonic() - began
    memory, text = {}, ""
    if program is not None:
        analysis: Any = program.memory_analysis()
        memory = {
            "peak": analysis.peak_memory_in_bytes,
            "arguments": analysis.argument_size_in_bytes,
            "temporaries": analysis.temp_size_in_bytes,
            "code": analysis.generated_code_size_in_bytes,
        }
        text = program.as_text() or ""
    rate = 0.0
    if target.kind == "cpu":
        measure = matrix_rate(experiment)
        rate = max(measure() for _ in range(20))
    return Answer(
        fits=program is not None,
        message=message,
        seconds=seconds,
        places=places,
        state=known,
        memory=memory,
        text=text,
        matrix_rate=rate,
    )


def devices_of(target: Target) -> list[Any]:
    """Devices to compile for, which need not be here."""
    import jax
    from jax.experimental import topologies

    if target.kind == "cpu":
        return jax.devices("cpu")[:1]
    assert target.chip is not None
    shape = "x".join(map(str, target.shape))
    if target.kind == "tpu":
        return topologies.get_topology_desc(
            platform="tpu", topology_name=f"{target.chip.name}:{shape}"
        ).devices
    from transduce.planning.gpu import target_config

    return topologies.get_topology_desc(
        platform="cuda",
        topology_name=target.chip.name,
        target_config=target_config(target.chip),
        topology=f"1x{shape}",
    ).devices


def _bytes_on_a_chip(tree: Any) -> int:
    import jax

    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def matrix_rate(experiment: Experiment) -> Callable[[], float]:
    """What measures, at each call, FLOP/s of the products of a feed-forward layer on this CPU: of
    up to 4,096 positions with its matrix, and the two for the gradients."""
    import jax
    import jax.numpy as jnp

    model, data = experiment.model, experiment.data
    positions = min(4096, data.rows * data.row_length)
    x = jnp.ones((positions, model.d_model), model.dtype)
    matrix = jnp.ones((model.d_model, model.d_ff), model.dtype)
    slope = jnp.ones((positions, model.d_ff), model.dtype)
    products = jax.jit(lambda x, w, g: (x @ w, g @ w.T, x.T @ g))
    flops = 3 * 2 * positions * model.d_model * model.d_ff
    jax.block_until_ready(products(x, matrix, slope))

    def measure() -> float:
        began = time.perf_counter()
        jax.block_until_ready(products(x, matrix, slope))
        return flops / (time.perf_counter() - began)

    return measure


if __name__ == "__main__":
    main()
