"""Programs as text: a hand-written one, and one that the compiler made."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from transduce.planning.hlo import Array, Unreadable, arrays, parse

from .programs import KERNEL, LOOP


def test_instructions_are_read_with_shapes_operands_and_attributes() -> None:
    module = parse(LOOP)
    assert module.entry == "main"
    assert set(module.computations) == {"add", "body", "condition", "main"}
    dense = module.by_name("body")["dense"]
    assert (dense.opcode, dense.operands, dense.op_name) == ("fusion", ("x",), "jit(step)/dense")
    assert dense.arrays[0].sizes == (8, 256, 1024)
    assert [str(a) for a in module.by_name("main")["loop"].arrays] == [
        "s32[]",
        "bf16[8,256,1024]",
    ]


def test_an_attribute_of_several_lines_is_one_instructions() -> None:
    kernel = parse(KERNEL).by_name("main")["splash_mha_fwd_residuals.3"]
    assert kernel.operands == ("mask", "q", "k", "k")
    assert kernel.op_name == "pallas_call"


def test_a_loop_runs_as_often_as_its_condition_says() -> None:
    module = parse(LOOP)
    assert module.trips(module.by_name("main")["loop"]) == 6


def test_what_the_compiler_knows_of_a_loop_goes_first() -> None:
    text = LOOP.replace("body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"4"}}')
    module = parse(text)
    assert module.trips(module.by_name("main")["loop"]) == 4


def test_a_loop_whose_end_is_no_constant_has_no_known_number() -> None:
    module = parse(LOOP.replace("constant(6)", "parameter(1)"))
    assert module.trips(module.by_name("main")["loop"]) is None


def test_the_line_of_this_package_is_found_and_no_other() -> None:
    module = parse(LOOP)
    assert module.place(module.by_name("main")["grad"]) == "model/layers.py:59"
    # Frame 2 is Flax's, and its parent, frame 1, this package's.
    assert module.place(module.by_name("body")["dense"]) == "model/layers.py:59"
    assert module.place(module.by_name("main")["meanwhile"]) == ""


@pytest.mark.parametrize(
    ("shape", "size", "tiled"),
    [
        ("f32[]{:T(128)}", 4, 4),
        ("f32[1000]{0:T(1024)}", 4000, 4096),
        ("bf16[6,8,256,64]{3,2,1,0:T(8,128)(2,1)}", 1_572_864, 3_145_728),
        ("f32[6,6,256,1]{2,1,3,0:T(8,128)}", 36_864, 6 * 8 * 256 * 4),
        ("pred[3,5]{1,0}", 15, 15),
        ("s4[3]{0}", 2, 2),
        ("f8e4m3fn[7]{0}", 7, 7),
    ],
)
def test_bytes_of_an_array_alone_and_in_whole_tiles(shape: str, size: int, tiled: int) -> None:
    (array,) = arrays(shape)
    assert (array.bytes, array.tiled_bytes) == (size, tiled)


def test_a_tuple_has_several_arrays_and_some_lie_in_fast_memory() -> None:
    found = arrays("(f32[2]{0:T(128)S(1)}, /*index=1*/u32[3]{0})")
    assert [array.in_main_memory for array in found] == [False, True]
    assert found[1] == Array(kind="u32", sizes=(3,), layout="0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("HloModule x", "no ENTRY"),
        ("ENTRY %m () -> f32[] {\n  nonsense\n}\n", "not an instruction: nonsense"),
        ("ENTRY %m () -> f32[] {\n  %a = f32[] constant(0\n}\n", "parentheses"),
    ],
)
def test_what_is_not_hlo_is_named(text: str, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        parse(text)


def test_a_program_of_the_compiler_is_read() -> None:
    """A scan of 5 over a product, and a product after it, on this CPU."""

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        x, _ = lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, None, length=5)
        return x @ w

    x = jnp.ones((16, 16))
    module = parse(jax.jit(f).lower(x, x).compile().as_text() or "")
    loops = [i for i in module.computations[module.entry] if i.opcode == "while"]
    assert [module.trips(loop) for loop in loops] == [5]
    (result,) = [a for a in module.computations[module.entry][-1].arrays if a.sizes]
    assert result.bytes == 16 * 16 * 4
