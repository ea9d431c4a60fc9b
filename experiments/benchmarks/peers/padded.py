"""Batches as the peers make them: a sentence a row, filled up with PAD to the longest.

Ids are ours: 0 PAD, 1 BOS, 2 EOS. NumPy alone, and Python 3.11: it runs in the peers' environments.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

Pair = tuple[np.ndarray, np.ndarray]
"""Source and target ids, EOS included; in a batch both [B, longest]."""

EOS = 2

POOL = 50
"""Batches' worth of sentences that are sorted by length together, where a peer does so."""


def batches(work: dict[str, Any], *, sort: bool) -> Iterator[Pair]:
    """Endless batches of the pairs in the file `work["pairs"]`, or of full rows of random ids.

    A batch takes sentences until its padded target has as many tokens as `work["shape"]` has in
    its rows. Sentences come at random, or with `sort` from pools that are sorted by length.
    """
    shape = work["shape"]
    generator = np.random.default_rng(0)
    if not work["pairs"]:
        size = (shape["rows"], shape["length"])
        source, target = (generator.integers(4, shape["vocabulary"], size) for _ in range(2))
        source[:, -1] = target[:, -1] = EOS
        while True:
            yield source, target
    tokens = shape["rows"] * shape["length"]
    pairs = read(work["pairs"])
    mean = sum(len(target) for _, target in pairs) / len(pairs)
    pool = int(POOL * tokens / mean)
    while True:
        order = generator.permutation(len(pairs))
        made = []
        for start in range(0, len(order), pool):
            part = [pairs[index] for index in order[start : start + pool]]
            if sort:
                part.sort(key=lambda pair: (len(pair[1]), len(pair[0])))
            made += cut(part, tokens)
        for index in generator.permutation(len(made)) if sort else range(len(made)):
            yield padded(made[index])


def cut(pairs: list[Pair], tokens: int) -> list[list[Pair]]:
    """In batches of whose longest target the rows have at least `tokens`; what is left is not
    given."""
    made, batch, longest = [], [], 0
    for pair in pairs:
        batch.append(pair)
        longest = max(longest, len(pair[1]))
        if longest * len(batch) >= tokens:
            made.append(batch)
            batch, longest = [], 0
    return made


def padded(batch: list[Pair]) -> Pair:
    return _filled([source for source, _ in batch]), _filled([target for _, target in batch])


def _filled(rows: list[np.ndarray]) -> np.ndarray:
    whole = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for row, ids in zip(whole, rows, strict=True):
        row[: len(ids)] = ids
    return whole


def write(path: str, pairs: list[Pair]) -> None:
    sides = zip(("source", "target"), zip(*pairs, strict=True), strict=True)
    arrays = {}
    for name, rows in sides:
        arrays[name] = np.concatenate(rows)
        arrays[f"{name}_lengths"] = np.array([len(row) for row in rows])
    np.savez(path, allow_pickle=False, **arrays)


def read(path: str) -> list[Pair]:
    with np.load(path) as file:
        sides = [
            np.split(file[name], np.cumsum(file[f"{name}_lengths"])[:-1])
            for name in ("source", "target")
        ]
    return list(zip(*sides, strict=True))
