import pytest

from transduce.config import RequestError
from transduce.planning.target import parse_target


@pytest.mark.parametrize(
    ("name", "shape", "closed"),
    [
        ("tpu-v5e:4x4", (4, 4), (False, False)),
        ("tpu-v5e:8x16", (8, 16), (False, True)),
        ("tpu-v6e:16x16", (16, 16), (True, True)),
        ("tpu-v5p:2x2x4", (2, 2, 4), (False, False, False)),
        ("tpu-v5p:4x4x8", (4, 4, 8), (True, True, True)),
        ("h200:8", (1, 8), (False, False)),
        ("h100:16", (2, 8), (False, False)),
        ("h100:4", (1, 4), (False, False)),
        ("cpu", (1,), (False,)),
    ],
)
def test_a_machine_is_found_by_its_name(
    name: str, shape: tuple[int, ...], closed: tuple[bool, ...]
) -> None:
    target = parse_target(name)
    assert (target.shape, target.closed) == (shape, closed)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tpu-v9:4x4", "tpu-v9:4x4: not one of tpu-v5e:..., tpu-v5p:..., tpu-v6e:..., h100:8"),
        ("v5e:4x4", "not one of tpu-v5e"),
        ("tpu-h100:8", "not one of"),
        ("cpu:4", "not one of"),
        ("a100-40gb:8", "not one of"),
        ("tpu-v5e:4x5", "slices of v5e are 1x1, 2x2, 2x4, 4x4"),
        ("tpu-v5e", "slices of v5e are"),
        ("tpu-v5p:4x4", "slices of v5p are 1x1x1, .* or AxBxC of multiples of 4"),
        ("tpu-v5p:8x4x4", "ascending"),
        ("tpu-v5p:16x20x28", "to 6,144"),
        ("h100:12", "up to 8 on a host or a multiple of 8"),
        ("h100:0", "say how many"),
        ("h100", "say how many"),
    ],
)
def test_a_wrong_name_is_told_what_would_be_right(name: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_target(name)
