"""Small models and batches that the tests of the model share."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from transduce.arrays import EOS, Batch, Tokens
from transduce.config import ModelConfig
from transduce.model.transformer import Transformer

QUICKLY = {"xla_backend_optimization_level": 0}
"""Compiler options that halve the time to compile; what is tested is the mathematics."""

type Pair = tuple[Sequence[int], Sequence[int]]
"""Source and target ids, both ending with EOS."""


def tiny(**changes: Any) -> ModelConfig:
    """A model in float64 in which no two sizes are the same but D and 2 d_v."""
    sizes: dict[str, Any] = {
        "vocabulary_size": 11,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "d_model": 6,
        "d_ff": 5,
        "heads": 2,
        "d_k": 4,
        "d_v": 3,
        "learned_positions": 12,
        "dropout": 0.0,
        "dtype": "float64",
    }
    return ModelConfig(**sizes | changes)


def filled(config: ModelConfig, *, scale: float = 0.4, seed: int = 0) -> Transformer:
    """A model whose parameters are all random: biases not zero, gains near one but not one."""
    shapes = jax.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0)))
    generator = np.random.default_rng(seed)

    def draw(path: Any, leaf: Any) -> jax.Array:
        mean = 1.0 if name_of(path).endswith("norm.scale") else 0.0
        return jnp.asarray(mean + scale * generator.standard_normal(leaf.shape), leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def name_of(path: Any) -> str:
    """`decoder.attention.query` of a leaf's path in a module."""
    return jax.tree_util.keystr(path).removeprefix(".").removesuffix(".value")


def named(tree: Any) -> dict[str, np.ndarray]:
    """The leaves of a module, or of gradients for it, by name."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {name_of(path): np.asarray(leaf) for path, leaf in leaves}


def random_pairs(lengths: Sequence[tuple[int, int]], *, vocabulary: int, seed: int) -> list[Pair]:
    """Pairs of the given lengths, EOS counted."""
    generator = np.random.default_rng(seed)

    def side(length: int) -> list[int]:
        return [*generator.integers(3, vocabulary, length - 1).tolist(), EOS]

    return [(side(source), side(target)) for source, target in lengths]


def packed(
    rows: Sequence[Sequence[Pair]],
    *,
    source_length: int,
    target_length: int,
    rubbish: Callable[[tuple[int, ...]], np.ndarray] = np.zeros,
) -> Batch:
    """Rows of pairs end to end; `rubbish` gives ids and positions where there is no sequence."""

    def side(which: int, length: int) -> Tokens:
        shape = (len(rows), length)
        ids, positions = rubbish(shape).astype(np.int32), rubbish(shape).astype(np.int32)
        segments = np.zeros(shape, np.int32)
        for row, pairs in enumerate(rows):
            start = 0
            for number, pair in enumerate(pairs, start=1):
                place = slice(start, start + len(pair[which]))
                ids[row, place], segments[row, place] = pair[which], number
                positions[row, place] = np.arange(len(pair[which]))
                start = place.stop
        return Tokens(
            ids=jnp.asarray(ids), segments=jnp.asarray(segments), positions=jnp.asarray(positions)
        )

    return Batch(source=side(0, source_length), target=side(1, target_length))


def unpacked(
    values: Any, batch: Batch, rows: Sequence[Sequence[Pair]]
) -> list[tuple[Pair, np.ndarray]]:
    """Each pair beside what `values` [B, T, ...] holds at its target's positions."""
    values, segments = np.asarray(values), np.asarray(batch.target.segments)
    return [
        (pair, values[row][segments[row] == number])
        for row, pairs in enumerate(rows)
        for number, pair in enumerate(pairs, start=1)
    ]
