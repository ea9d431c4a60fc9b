"""Products of activations with matrices of parameters."""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from transduce.arrays import Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 3))
def product(formula: str, x: Array, matrix: Array, layout: P | None = None) -> Array:
    """`jnp.einsum` of activations with a matrix, the result laid out as `layout`.

    The values and gradients are einsum's. On CPUs the matrix' gradient is made as x^T g rather
    than as (g^T x)^T: one of the two is transposed in memory first, and x, which the forward pass
    has made already, is copied so faster than g with all that computes it.
    """
    return jnp.einsum(formula, x, matrix, out_sharding=layout)


def _forward(formula: str, x: Array, matrix: Array, layout: P | None) -> tuple:
    # Not `product` itself, into which what decides what a layer keeps does not look.
    return jnp.einsum(formula, x, matrix, out_sharding=layout), (x, matrix)


def _backward(formula: str, layout: P | None, kept: tuple[Array, Array], g: Array) -> tuple:
    x, matrix = kept
    operands, result = formula.split("->")
    of_x, of_matrix = operands.split(",")
    x_gradient = jnp.einsum(f"{result},{of_matrix}->{of_x}", g, matrix, out_sharding=_layout(x))
    layout = _layout(matrix)

    def on_cpu(x: Array, g: Array) -> Array:
        # Else XLA computes x again, value by value, in the order of the copy; and it copies x long
        # before there is g, and keeps both.
        x, g = jax.lax.optimization_barrier((x, g))
        return jnp.einsum(f"{of_x},{result}->{of_matrix}", x, g, out_sharding=layout)

    def elsewhere(x: Array, g: Array) -> Array:
        return jnp.einsum(f"{result},{of_x}->{of_matrix}", g, x, out_sharding=layout)

    matrix_gradient = jax.lax.platform_dependent(x, g, cpu=on_cpu, default=elsewhere)
    return x_gradient, matrix_gradient


def _layout(x: Array) -> P | None:
    """How `x` is divided, where the mesh is explicit."""
    return jax.typeof(x).sharding.spec if jax.sharding.get_abstract_mesh().explicit_axes else None


product.defvjp(_forward, _backward)
