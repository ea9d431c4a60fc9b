import jax.numpy as jnp
import numpy as np

from transduce.arrays import Batch, Tokens
from transduce.model.visibility import Visible, among

NO, YES = False, True


def tokens(segments: list[int], positions: list[int]) -> Tokens:
    return Tokens(
        ids=jnp.asarray([[9] * len(segments)]),
        segments=jnp.asarray([segments]),
        positions=jnp.asarray([positions]),
    )


def test_a_position_sees_its_own_sequence_and_padding_sees_none() -> None:
    queries, keys = jnp.asarray([[1, 2, 2, 0]]), jnp.asarray([[1, 1, 2, 0, 0]])
    visible = Visible(queries=queries, keys=keys).mask()
    expected = [
        [YES, YES, NO, NO, NO],
        [NO, NO, YES, NO, NO],
        [NO, NO, YES, NO, NO],
        [NO, NO, NO, NO, NO],
    ]
    np.testing.assert_array_equal(visible[0], expected)


def test_a_target_position_sees_itself_and_what_came_before_it_in_its_sequence() -> None:
    visible = among(tokens([1, 1, 2, 2, 2, 0], [0, 1, 0, 1, 2, 0]), causal=True).mask()
    expected = [
        [YES, NO, NO, NO, NO, NO],
        [YES, YES, NO, NO, NO, NO],
        [NO, NO, YES, NO, NO, NO],
        [NO, NO, YES, YES, NO, NO],
        [NO, NO, YES, YES, YES, NO],
        [NO, NO, NO, NO, NO, NO],
    ]
    np.testing.assert_array_equal(visible[0], expected)


def test_the_mask_of_a_part_is_a_part_of_the_mask() -> None:
    """Queries 2 to 4 and keys 1 to 3 of a row of two sequences."""
    segments = jnp.asarray([[1, 1, 2, 2, 2]])
    part = Visible(queries=segments[:, 2:], keys=segments[:, 1:4], causal=True)
    expected = [[NO, YES, NO], [NO, YES, YES], [NO, YES, YES]]
    np.testing.assert_array_equal(part.mask(row=2, column=1)[0], expected)


def test_a_single_sequence_a_row_is_segment_1_up_to_padding() -> None:
    single = Tokens.single(jnp.asarray([[7, 8, 2, 0], [9, 2, 0, 0]]))
    np.testing.assert_array_equal(single.segments, [[1, 1, 1, 0], [1, 1, 0, 0]])
    np.testing.assert_array_equal(single.positions, [[0, 1, 2, 3]] * 2)


def test_the_decoder_reads_its_target_shifted_right_within_each_sequence() -> None:
    target = Tokens(
        ids=jnp.asarray([[7, 8, 2, 9, 2, 5]]),
        segments=jnp.asarray([[1, 1, 1, 2, 2, 0]]),
        positions=jnp.asarray([[0, 1, 2, 0, 1, 5]]),
    )
    inputs = Batch(source=target, target=target).decoder_inputs()
    np.testing.assert_array_equal(inputs.ids, [[1, 7, 8, 1, 9, 0]])
    np.testing.assert_array_equal(inputs.segments, target.segments)
    np.testing.assert_array_equal(inputs.positions, target.positions)
