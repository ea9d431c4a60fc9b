"""Blocks: the fixed shapes in which sentences are searched and scored.

A row's values depend, in the last bits, on the shape it is computed in, and on nothing else in
its block. So a line's shape is chosen from that line alone, and every block of that shape has
the same number of rows, filled up with rows that are thrown away. How many lines there are, in
what order and how many are asked for at a time then makes no difference to any of them.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np

from transduce.arrays import EOS

WIDTHS = (32, 64, 128)
"""Of blocks; beyond the last, multiples of it."""


def width_for(length: int) -> int:
    """The width of block for a sequence of `length` tokens."""
    for width in WIDTHS:
        if length <= width:
            return width
    return -(-length // WIDTHS[-1]) * WIDTHS[-1]


def blocks[Shape: Hashable](
    shapes: Sequence[Shape], lengths: Sequence[int], rows: int
) -> Iterator[tuple[Shape, list[int]]]:
    """Groups items of equal shape, at most `rows` to a group; gives each group's indices.

    Items of similar length go together, so that those of a group finish at about the same time.
    """
    groups: dict[Shape, list[int]] = {}
    for index in sorted(range(len(shapes)), key=lambda index: lengths[index]):
        groups.setdefault(shapes[index], []).append(index)
    for shape, members in groups.items():
        for start in range(0, len(members), rows):
            yield shape, members[start : start + rows]


def rectangle(sequences: Iterable[Sequence[int]], *, rows: int, width: int) -> np.ndarray:
    """[rows, width] of ids, each sequence in a row of its own; rows left over hold EOS alone."""
    ids = np.zeros((rows, width), np.int32)
    ids[:, 0] = EOS
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
    return ids
