"""What a step of beam search cannot do without, part by part, on one core.

    taskset -c 0 python -m experiments.benchmarks.decoding_floor

The base model in float32 with beam 4 and sources of 32 tokens, halfway to outputs of 64: its
products with matrices, each measured alone over the weights of all layers, and its keys and values,
read once each at the rate at which one core sums an array. All else that a step does (the softmax,
normalisation, writing, the choice of hypotheses, moving them) counts as nothing, so no program that
makes the same products by the same library can be faster. With every core at a block of its own,
sentences a second are at most the cores times that of one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import tyro

from experiments.benchmarks.rate import per_second
from experiments.benchmarks.shapes import DECODING, SHAPES
from transduce.arrays import Array

SHAPE = SHAPES["base"] | DECODING


@dataclass
class Arguments:
    """Count the floor of a decoding step on one core."""

    rows: tuple[int, ...] = (8, 16, 32)
    """Sentences of a block."""
    cores: int = 2
    """Each at a block of its own."""
    seconds: float = 2.0
    """Of each measurement."""


def main() -> None:
    asked = tyro.cli(Arguments)
    read = reading_rate(asked.seconds)
    print(f"reading: {read / 1e9:.1f} GB/s")
    for rows in asked.rows:
        parts = products(rows, asked.seconds)
        parts["keys and values"] = keys_and_values(rows) / read
        total = sum(parts.values())
        print(f"\n{rows} sentences: {1000 * total:.1f} ms a step")
        for name, seconds in parts.items():
            print(f"  {1000 * seconds:6.1f} ms  {name}")
        most = asked.cores * rows / (SHAPE["output"] * total)
        print(f"  at most {most:.1f} sentences a second on {asked.cores} cores")


def products(rows: int, seconds: float) -> dict[str, float]:
    """Seconds of a step of `rows` sentences by kind of product, over all layers."""
    d_model, d_ff, layers = SHAPE["d_model"], SHAPE["d_ff"], SHAPE["layers"]
    kinds = {
        "Q, K and V of self-attention": (d_model, 3 * d_model, layers),
        "W^O twice, and Q to the source": (d_model, d_model, 3 * layers),
        "feed-forward, into": (d_model, d_ff, layers),
        "feed-forward, out": (d_ff, d_model, layers),
        "logits": (d_model, SHAPE["vocabulary"], 1),
    }
    found = {}
    for name, (narrow, wide, count) in kinds.items():
        x = jnp.ones((rows * SHAPE["beam"], narrow))
        matrices = [jnp.full((narrow, wide), 1.0 + i) for i in range(count)]
        once = 1 / per_second(_call(_all, x, matrices), seconds, warm=3)
        rate = 2 * x.shape[0] * narrow * wide * count / once
        found[f"{name} ({rate / 1e9:.0f} GFLOP/s)"] = once
    return found


@jax.jit
def _all(x: Array, matrices: list[Array]) -> list[Array]:
    return [x @ matrix for matrix in matrices]


def reading_rate(seconds: float) -> float:
    """Bytes a second."""
    array = jnp.ones(2**26)
    return array.nbytes * per_second(_call(jax.jit(jnp.sum), array), seconds, warm=3)


def keys_and_values(rows: int) -> int:
    """Bytes of a step: of the source a sentence's, of the output each hypothesis' own."""
    positions = rows * (SHAPE["source"] + SHAPE["beam"] * SHAPE["output"] // 2)
    return SHAPE["layers"] * positions * 2 * SHAPE["d_model"] * 4


def _call(program: Callable[..., object], *arguments: object) -> Callable[[], int]:
    def once() -> int:
        jax.block_until_ready(program(*arguments))
        return 1

    return once


if __name__ == "__main__":
    main()
