"""Memory of attention, its gradients included, by kernel: compiled, not run.

    python -m experiments.benchmarks.attention_memory --length 16384
    python -m experiments.benchmarks.attention_memory --on v5p:2x2x1 --kernels plain splash

Bytes that the compiled program takes beside its arguments and results, on each device: of causal
self-attention over packed rows, values and gradients. Rows are divided over all devices. Another
platform's devices need not be here, only its compiler: --on a TPU topology needs the package
libtpu.
"""

import os
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import tyro
from jax.experimental import topologies
from jax.sharding import NamedSharding

from transduce.arrays import Array
from transduce.config import MeshConfig
from transduce.model.kernels import Kernel, attend
from transduce.model.visibility import Visible
from transduce.parallel.mesh import make_mesh, spec


@dataclass
class Arguments:
    """Compare the memory of attention kernels."""

    length: int = 16384
    """T and S."""
    rows: int = 1
    """Of each device."""
    heads: int = 8
    width: int = 64
    dtype: Literal["float32", "bfloat16"] = "float32"
    kernels: tuple[Kernel, ...] = ("plain", "chunked")
    on: str = "cpu"
    """A TPU topology such as v5e:2x2, or cpu."""


def main() -> None:
    asked = tyro.cli(Arguments)
    mesh = make_mesh(MeshConfig(), devices_of(asked.on))
    for kernel in asked.kernels:
        memory = compiled(asked, kernel, mesh).memory_analysis()
        print(f"{kernel:8} {memory.temp_size_in_bytes:16,} bytes", flush=True)


def devices_of(name: str) -> list[Any]:
    if name == "cpu":
        return jax.devices("cpu")[:1]
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    return topologies.get_topology_desc(platform="tpu", topology_name=name).devices


def compiled(asked: Arguments, kernel: Kernel, mesh: Any) -> Any:
    """The program of values and gradients."""

    def loss(queries: Array, keys: Array, values: Array, segments: Array) -> Array:
        visible = Visible(queries=segments, keys=segments, causal=True)
        return jnp.sum(attend(queries, keys, values, visible, kernel=kernel) ** 2)

    with jax.set_mesh(mesh):
        rows = asked.rows * mesh.size

        def argument(shape: tuple[int, ...], dtype: Any, *logical: str | None) -> Any:
            return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec(*logical)))

        heads = argument(
            (rows, asked.length, asked.heads, asked.width),
            jnp.dtype(asked.dtype),
            *("batch", None, "heads", None),
        )
        segments = argument((rows, asked.length), jnp.int32, "batch", None)
        program = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))
        return program.lower(heads, heads, heads, segments).compile()


if __name__ == "__main__":
    main()
