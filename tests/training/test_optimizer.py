from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transduce.config import OptimizerConfig
from transduce.training.optimizer import learning_rate, make_optimizer


def rate(step: int, *, d_model: int, **config) -> float:
    """At update `step`, counted from 1 as in the paper."""
    return np.asarray(learning_rate(OptimizerConfig(**config), d_model=d_model)(step - 1)).item()


# Equation 3 with d_model 64 and 100 warm-up steps: 1/8 of min(step^-0.5, step / 1000).
@pytest.mark.parametrize(
    ("step", "expected"),
    [(1, 0.125 / 1000), (25, 0.125 / 40), (100, 0.125 / 10), (400, 0.125 / 20), (2500, 0.125 / 50)],
)
def test_the_learning_rate_is_that_of_equation_3(step: int, expected: float) -> None:
    assert rate(step, d_model=64, warmup_steps=100) == pytest.approx(expected, rel=1e-6)


def test_a_peak_given_outright_is_reached_at_the_end_of_the_warm_up() -> None:
    config = {"warmup_steps": 100, "peak_learning_rate": 0.02}
    for step, expected in [(1, 0.0002), (50, 0.01), (100, 0.02), (400, 0.01), (10_000, 0.002)]:
        assert rate(step, d_model=64, **config) == pytest.approx(expected, rel=1e-6)


def test_the_base_model_peaks_at_seven_ten_thousandths() -> None:
    # 512^-0.5 4000^-0.5 = 1 / sqrt(2,048,000) = 1 / 1431.08.
    rates = [rate(step, d_model=512) for step in (3999, 4000, 4001)]
    assert rates[1] == max(rates) == pytest.approx(6.98771e-4, rel=1e-5)


def adam(gradients, *, rates, beta1: float, beta2: float, epsilon: float):
    """Algorithm 1 of Kingma & Ba 2015 in numpy: the change of the parameters at each step."""
    first = second = np.zeros_like(gradients[0])
    for step, (gradient, alpha) in enumerate(zip(gradients, rates, strict=True), start=1):
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
        unbiased_first = first / (1 - beta1**step)
        unbiased_second = second / (1 - beta2**step)
        yield -alpha * unbiased_first / (np.sqrt(unbiased_second) + epsilon)


def test_three_updates_are_those_of_adam(x64) -> None:
    generator = np.random.default_rng(1)
    gradients = [generator.normal(size=50) * 10.0 ** generator.integers(-9, 2, 50) for _ in "123"]
    # Tiny gradients tell whether epsilon is added inside or outside of the root.
    optimizer = make_optimizer(OptimizerConfig(warmup_steps=2), d_model=16)
    state = optimizer.init(jnp.zeros(50))
    # 0.25 min(step^-0.5, step 2^-1.5)
    rates = [0.25 * 2**-1.5, 0.25 * 2**-0.5, 0.25 * 3**-0.5]
    expected = adam(gradients, rates=rates, beta1=0.9, beta2=0.98, epsilon=1e-9)
    for gradient, change in zip(gradients, expected, strict=True):
        updates, state = optimizer.update(jnp.asarray(gradient), state)
        assert isinstance(updates, jax.Array)
        assert updates.dtype == jnp.float64
        # The learning rate alone is float32.
        np.testing.assert_allclose(updates, change, rtol=2e-7)


def first_changes(gradients: list[float], **config) -> list[float]:
    """Adam's first change is -rate g / (|g| + epsilon); here with rate 1 and epsilon 1."""
    settings = OptimizerConfig(warmup_steps=1, peak_learning_rate=1, epsilon=1, **config)
    optimizer = make_optimizer(settings, d_model=16)
    parameters: Any = list(map(jnp.float32, gradients))
    updates, _ = optimizer.update(parameters, optimizer.init(parameters))
    return [float(leaf) for leaf in jax.tree.leaves(updates)]


def test_gradients_are_clipped_to_a_norm_over_all_parameters() -> None:
    gradients = [3.0, -4.0]
    # Unclipped; of norm 5 scaled down to 1 and to 4; of a norm that is below the limit.
    expected = [
        (0.0, [-3 / 4, 4 / 5]),
        (1.0, [-0.6 / 1.6, 0.8 / 1.8]),
        (4.0, [-2.4 / 3.4, 3.2 / 4.2]),
        (6.0, [-3 / 4, 4 / 5]),
    ]
    for limit, changes in expected:
        assert first_changes(gradients, clip_norm=limit) == pytest.approx(changes, rel=1e-6)
