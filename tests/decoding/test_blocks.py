import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.decoding.blocks import blocks, rectangle, width_for


@pytest.mark.parametrize(
    ("length", "width"),
    [(1, 32), (32, 32), (33, 64), (64, 64), (65, 128), (128, 128), (129, 256), (257, 384)],
)
def test_widths_are_few_and_hold_the_sequence(length: int, width: int) -> None:
    assert width_for(length) == width


@given(st.lists(st.integers(1, 300)), st.integers(1, 20))
def test_every_item_is_in_one_block_of_its_shape(lengths: list[int], rows: int) -> None:
    """D11: whatever is left over when `rows` to a block are taken."""
    shapes = [width_for(length) for length in lengths]
    found = list(blocks(shapes, lengths, rows))
    assert sorted(index for _, members in found for index in members) == list(range(len(lengths)))
    for shape, members in found:
        assert 1 <= len(members) <= rows
        assert {shapes[index] for index in members} == {shape}
    for shape in set(shapes):
        sizes = [len(members) for found_shape, members in found if found_shape == shape]
        assert sizes[:-1] == [rows] * (len(sizes) - 1)


def test_items_of_similar_length_go_together() -> None:
    lengths = [9, 2, 7, 40, 3, 8]
    shapes = [width_for(length) for length in lengths]
    assert list(blocks(shapes, lengths, 2)) == [(32, [1, 4]), (32, [2, 5]), (32, [0]), (64, [3])]


def test_rows_left_over_hold_the_end_alone() -> None:
    """PAD is 0 and EOS is 2."""
    ids = rectangle([[7, 8, 2], [2], [5, 2]], rows=4, width=4)
    assert ids.tolist() == [[7, 8, 2, 0], [2, 0, 0, 0], [5, 2, 0, 0], [2, 0, 0, 0]]
