import math

import jax.numpy as jnp
import numpy as np
import pytest

from transduce.model.positions import rotate, sinusoids


@pytest.mark.usefixtures("x64")
def test_sinusoids_are_those_of_section_3_5() -> None:
    """Sine and cosine interleaved, of wavelengths 2 pi 10000^(2i/D)."""
    positions = jnp.asarray([[0, 1, 5], [7, 100, 1023]])
    ours = np.asarray(sinusoids(positions, 6, jnp.dtype("float64")))
    # 10000^(2/6) = 21.544346900318839 and 10000^(4/6) = 464.15888336127789.
    lengths = [1.0, 21.544346900318839, 464.15888336127789]
    expected = [
        [wave(position / length) for length in lengths for wave in (math.sin, math.cos)]
        for position in (0, 1, 5, 7, 100, 1023)
    ]
    np.testing.assert_allclose(ours.reshape(6, 6), expected, rtol=0, atol=1e-13)


def test_sinusoids_by_hand() -> None:
    ours = np.asarray(sinusoids(jnp.asarray([[0, 1]]), 4, jnp.dtype("float32")))
    # sin 1, cos 1, sin 0.01, cos 0.01 from their series.
    expected = [[0, 1, 0, 1], [0.84147098, 0.54030231, 0.00999983, 0.99995000]]
    np.testing.assert_allclose(ours[0], expected, rtol=0, atol=1e-7)


def test_sinusoids_stay_exact_far_out_in_float32() -> None:
    position, width = 5000, 512
    ours = np.asarray(sinusoids(jnp.asarray([[position]]), width, jnp.dtype("float32")))[0, 0]
    angles = [position / 10000 ** (2 * i / width) for i in range(width // 2)]
    expected = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
    # An angle of 5000 is known to 5000 * 2^-24 = 3e-4 in float32.
    np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-3)


@pytest.mark.usefixtures("x64")
def test_a_rotation_turns_each_pair_by_its_angle() -> None:
    # Width 4: angles are the position and a hundredth of it.
    x = jnp.asarray([[[[1.0, 0.0, 0.0, 2.0]]]])
    ours = np.asarray(rotate(x, jnp.asarray([[3]])))[0, 0, 0]
    expected = [math.cos(3), math.sin(3), -2 * math.sin(0.03), 2 * math.cos(0.03)]
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-14)


@pytest.mark.usefixtures("x64")
def test_a_product_of_rotated_vectors_depends_on_their_distance_alone() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((2, 1, 5, 2, 6))
    start = np.arange(5)[None]

    def products(offset: int) -> np.ndarray:
        turned = (np.asarray(rotate(jnp.asarray(z), jnp.asarray(start + offset))) for z in (x, y))
        return np.einsum("btnh,bsnh->bnts", *turned)

    np.testing.assert_allclose(products(0), products(11), rtol=0, atol=1e-12)
    assert np.abs(products(0) - np.einsum("btnh,bsnh->bnts", x, y)).max() > 0.1
