"""Memory of the loss and its gradients, whole and in parts: compiled, not run.

    python -m experiments.benchmarks.loss_memory --shape base
    python -m experiments.benchmarks.loss_memory --shape big --on v5p:2x2x1 --dtype bfloat16

Bytes that the compiled program takes beside its arguments and results, on each device: of the final
layer and of cross-entropy with label smoothing, with the gradients of the hidden states and of the
table. Plain is what JAX's own differentiation makes of the softmax of all logits; the others are
`training.loss_chunks`. Rows are divided over all devices. As in `attention_memory`, another
platform's devices need not be here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import tyro
from jax.sharding import NamedSharding

from experiments.benchmarks.attention_memory import devices_of
from transduce.arrays import Array
from transduce.config import MeshConfig
from transduce.parallel.mesh import make_mesh, out_sharding, spec
from transduce.training.cross_entropy import cross_entropy

SMOOTHING = 0.1

WIDTHS = {"base": 512, "big": 1024}


@dataclass
class Arguments:
    """Compare the memory of the loss."""

    shape: Literal["base", "big"] = "base"
    """D, 512 or 1,024."""
    rows: int = 16
    """Of each device."""
    length: int = 256
    vocabulary: int = 37000
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of hidden states and of the table."""
    chunks: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    on: str = "cpu"
    """A TPU topology such as v5e:2x2, or cpu."""


def main() -> None:
    asked = tyro.cli(Arguments)
    mesh = make_mesh(MeshConfig(), devices_of(asked.on))
    plain = temporary(asked, plain_loss, mesh)
    print(f"plain       {plain:16,} bytes", flush=True)
    for count in asked.chunks:
        size = temporary(asked, in_chunks(count), mesh)
        print(f"{count:<11} {size:16,} bytes  {size / plain:.3f} of plain", flush=True)


def in_chunks(count: int) -> Callable[..., Array]:
    """The loss that training uses."""

    def loss(hidden: Array, table: Array, labels: Array, weights: Array) -> Array:
        return cross_entropy(hidden, table, labels, weights, SMOOTHING, count)[0]

    return loss


def plain_loss(hidden: Array, table: Array, labels: Array, weights: Array) -> Array:
    """The same, as one would write it without a thought for memory."""
    logits = jnp.einsum("btd,vd->btv", hidden, table, preferred_element_type=jnp.float32)
    log_probabilities = jax.nn.log_softmax(logits)
    layout = out_sharding("batch", None, None)
    hot = jax.nn.one_hot(labels, table.shape[0], out_sharding=layout)
    target = (1 - SMOOTHING) * hot + SMOOTHING / table.shape[0]
    return -jnp.sum(jnp.sum(target * log_probabilities, axis=-1) * weights)


def temporary(asked: Arguments, loss: Callable[..., Array], mesh: Any) -> int:
    """Of the program of the loss and its gradients."""
    with jax.set_mesh(mesh):
        size, width = (asked.rows * mesh.size, asked.length), WIDTHS[asked.shape]

        def argument(shape: tuple[int, ...], dtype: Any, *logical: str | None) -> Any:
            return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec(*logical)))

        arguments = (
            argument((*size, width), asked.dtype, "batch", None, None),
            argument((asked.vocabulary, width), asked.dtype, None, None),
            argument(size, jnp.int32, "batch", None),
            argument(size, jnp.float32, "batch", None),
        )
        program = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
        memory = program.lower(*arguments).compile().memory_analysis()
    assert memory is not None
    return memory.temp_size_in_bytes


if __name__ == "__main__":
    main()
