"""Formulas against sums by hand, against the model's own program, and against the compiler."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from transduce.arrays import Batch, Tokens
from transduce.config import ModelConfig
from transduce.model.arithmetic import Flops, Parameters, forward_flops, parameters, training_flops
from transduce.model.transformer import Transformer, parameter_count
from transduce.training.objective import objective

from .examples import QUICKLY

SMALL: dict[str, Any] = {
    "vocabulary_size": 50,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "d_model": 8,
    "d_ff": 32,
    "heads": 2,
    "d_k": 6,
    "d_v": 10,
    "learned_positions": 16,
}
ROWS = {"rows": 4, "source_length": 6, "target_length": 10}


def test_parameters_of_base_by_kind() -> None:
    attention, feed_forward = 4 * 512 * 512, 2 * 512 * 2048 + 2048 + 512
    assert parameters(ModelConfig()) == Parameters(
        embedding=37_000 * 512,
        attention=18 * attention,
        feed_forward=12 * feed_forward,
        norms=30 * 2 * 512,
    )
    assert parameters(ModelConfig()).total == 63_045_632


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positions": "learned"},
        {"positions": "rotary"},
        {"norm": "pre"},
        {"d_model": 1024, "d_ff": 4096, "heads": 16},
        SMALL,
    ],
)
def test_parameters_are_those_of_the_model(changes: dict[str, Any]) -> None:
    config = ModelConfig(**changes)
    assert parameters(config).total == parameter_count(config)


def test_forward_flops_by_hand() -> None:
    """h (d_k + d_v) is 32; 24 source and 40 target positions."""
    projections = 2 * (4 * 24 * 8 * 32)  # 49,152 of the encoder
    projections += 3 * (4 * 40 * 8 * 32)  # 122,880 of the decoder, to itself
    projections += 3 * (2 * (24 + 40) * 8 * 32)  # 98,304 to the source
    attention = 2 * (2 * 4 * 6 * 6 * 32) + 3 * (2 * 4 * (10 * 10 + 10 * 6) * 32)
    feed_forward = 2 * (4 * 24 * 8 * 32) + 3 * (4 * 40 * 8 * 32)
    assert (projections, attention, feed_forward) == (270_336, 141_312, 172_032)
    found = forward_flops(ModelConfig(**SMALL), **ROWS)
    assert found == Flops(
        projections=270_336,
        attention=141_312,
        feed_forward=172_032,
        logits=2 * 40 * 8 * 50,
    )
    assert found.total == 615_680


def test_a_step_is_three_times_the_forward_pass() -> None:
    found = training_flops(ModelConfig(**SMALL), **ROWS)
    assert found == Flops(
        projections=811_008, attention=423_936, feed_forward=516_096, logits=96_000
    )
    assert found.total == 3 * 615_680


def test_a_large_model_costs_six_flops_a_parameter_and_position() -> None:
    """The rule of thumb, where attention is short and the vocabulary small."""
    config = ModelConfig(d_model=4096, d_ff=16384, heads=32, d_k=128, d_v=128, vocabulary_size=1)
    found = training_flops(config, rows=1, source_length=16, target_length=16)
    assert found.total == pytest.approx(6 * parameters(config).total * 16, rel=0.01)


# ---- The program that JAX traces -------------------------------------------------------------


def products(jaxpr: Any) -> int:
    """FLOPs of the products of matrices in a traced program, its loops and calls included.

    Of branches for CPUs and for all else, which differ in order alone, one is counted.
    """
    total = 0
    for equation in jaxpr.eqns:
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            inner = math.prod(shape[axis] for axis in contracted)
            total += 2 * math.prod(equation.outvars[0].aval.shape) * inner
        params = equation.params
        if equation.primitive.name == "cond":
            first, second = params["branches"]
            assert products(first.jaxpr) == products(second.jaxpr)
            params = {"branch": first}
        inside = jax.tree.leaves(params, is_leaf=lambda each: hasattr(each, "jaxpr"))
        total += times * sum(products(each.jaxpr) for each in inside if hasattr(each, "jaxpr"))
    return total


def abstract(config: ModelConfig) -> Transformer:
    return jax.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0)))


def batch(*, rows: int, source_length: int, target_length: int) -> Batch:
    def side(length: int) -> Tokens:
        return Tokens.single(jnp.ones((rows, length), jnp.int32))

    return jax.eval_shape(lambda: Batch(source=side(source_length), target=side(target_length)))


def loss(model: Transformer, batch: Batch) -> jax.Array:
    return objective(model, batch, smoothing=0.1, chunks=5, key=jax.random.key(0)).loss


VARIANTS = [{}, {"positions": "learned"}, {"positions": "rotary"}, {"norm": "pre"}]


@pytest.mark.parametrize("changes", VARIANTS)
def test_every_product_of_the_forward_pass_is_counted(changes: dict[str, Any]) -> None:
    config = ModelConfig(**SMALL | changes)
    program = jax.make_jaxpr(lambda model, batch: model(batch))(abstract(config), batch(**ROWS))
    assert products(program.jaxpr) == forward_flops(config, **ROWS).total


@pytest.mark.parametrize("changes", VARIANTS)
def test_every_product_of_the_gradients_is_counted(changes: dict[str, Any]) -> None:
    """But for scores, which are made again: Q K^T of 2 heads of 6, over 2 x 6 x 6 and
    3 x (10 x 10 + 10 x 6) pairs of positions in each of 4 rows."""
    config = ModelConfig(**SMALL | changes)
    program = jax.make_jaxpr(jax.grad(loss))(abstract(config), batch(**ROWS))
    again = 2 * 4 * (2 * 36 + 3 * 160) * 2 * 6
    assert products(program.jaxpr) == training_flops(config, **ROWS).total + again


# ---- The compiler's count --------------------------------------------------------------------


def counted(function: Any, config: ModelConfig, sizes: dict[str, int]) -> float:
    """FLOPs of the compiled program, by the compiler's own count."""
    lowered = jax.jit(function).lower(abstract(config), batch(**sizes))
    costs = lowered.compile(QUICKLY).cost_analysis()
    assert costs is not None
    return costs["flops"]


def unrolled(d_model: int) -> ModelConfig:
    """Layers unrolled: the compiler counts the body of a loop once."""
    return ModelConfig(
        vocabulary_size=4 * d_model,
        encoder_layers=2,
        decoder_layers=1,
        d_model=d_model,
        d_ff=4 * d_model,
        heads=2,
        d_k=d_model // 2,
        d_v=d_model // 2,
        unroll=0,
    )


SIZES = {"rows": 4, "source_length": 16, "target_length": 24}


def test_the_compiler_counts_as_much_and_a_few_operations_a_value() -> None:
    """Within 3% at d_model 64, and half as much beyond the formula at 128.

    What it adds are softmax, normalisation, biases, residual sums and sinusoids: operations that
    grow with the widths, where products grow with their square.
    """
    beyond = {}
    for d_model in (64, 128):
        config = unrolled(d_model)
        found = counted(lambda model, batch: model(batch), config, SIZES)
        beyond[d_model] = found / forward_flops(config, **SIZES).total - 1
    assert 0.01 < beyond[64] < 0.03
    assert beyond[128] == pytest.approx(beyond[64] / 2, rel=0.25)


def test_the_compiler_counts_as_much_for_the_gradients() -> None:
    """Within 4% at d_model 64, without scores that are made again, and without dropout, whose
    random numbers cost another 3%."""

    def total(model: Transformer, batch: Batch) -> jax.Array:
        return objective(model, batch, smoothing=0.1, chunks=1, key=None).loss

    config = unrolled(64)
    # Q K^T is half of attention's products forward, which are a third of all.
    again = training_flops(config, **SIZES).attention / 6
    found = counted(jax.grad(total), config, SIZES) - again
    assert 0.01 < found / training_flops(config, **SIZES).total - 1 < 0.04
