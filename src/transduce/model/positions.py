"""What tells a position from another: sinusoids (section 3.5) and rotations."""

import jax.numpy as jnp

from transduce.arrays import Array, Float, Int


def sinusoids(positions: Int[Array, "B T"], width: int, dtype: jnp.dtype) -> Float[Array, "B T D"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D))."""
    angles = _angles(positions, width, dtype)
    waves = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)  # [B, T, D/2, 2]
    return waves.reshape(*positions.shape, width)


def rotate(x: Float[Array, "B T N H"], positions: Int[Array, "B T"]) -> Float[Array, "B T N H"]:
    """Rotary positions (Su et al. 2021): turns each pair (2i, 2i+1) by pos / 10000^(2i/H).

    The product of a rotated query with a rotated key depends on their distance alone.
    """
    dtype = jnp.promote_types(x.dtype, jnp.float32)
    angles = _angles(positions, x.shape[-1], dtype)[:, :, None, :]  # [B, T, 1, H/2]
    even, odd = x[..., ::2].astype(dtype), x[..., 1::2].astype(dtype)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    turned = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return turned.reshape(x.shape).astype(x.dtype)


def _angles(positions: Array, width: int, dtype: jnp.dtype) -> Array:
    exponents = jnp.arange(0, width, 2, dtype=dtype) / width
    return (
        positions[..., None].astype(dtype)
        * jnp.power(10_000.0, -exponents).astype(dtype)[None, None]
    )
