"""Only trees may be written, and all of them can be."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from transduce.arrays import EOS, PAD
from transduce.decoding.constraints import Pieces, permitted_pieces
from transduce.decoding.grammar import Alphabet, TreeGrammar

UNKNOWN, OPEN, CLOSE, ROOT, END_ROOT, NOUN, VERB = 3, 4, 5, 6, 7, 8, 9
WIDTH, ROOM, BEAMS = 10, 10, 512
SYMBOLS = {"(A": OPEN, ")A": CLOSE, "(TOP": ROOT, ")TOP": END_ROOT, "N": NOUN, "V": VERB}
ALPHABET = Alphabet.of(SYMBOLS)

type Sequence = tuple[int, ...]


@functools.cache
def forests(words: int, room: int) -> frozenset[Sequence]:
    """All sequences of tags and constituents (A ...) over some words, of at most `room` symbols."""
    if not words:
        return frozenset([()])
    found: set[Sequence] = set()
    for tag in (NOUN, VERB):
        if room:
            found |= {(tag, *rest) for rest in forests(words - 1, room - 1)}
    for inside in range(1, words + 1):
        if room > 2:
            for inner in forests(inside, room - 2):
                for rest in forests(words - inside, room - 2 - len(inner)):
                    found.add((OPEN, *inner, CLOSE, *rest))
    return frozenset(sequence for sequence in found if len(sequence) <= room)


def well_formed(words: int, limit: int) -> set[Sequence]:
    """All trees over `words`, of at most `limit` symbols; TOP is around all words or nowhere."""
    if not words:
        return {()}
    inner = forests(words, limit - 2) if limit > 2 else frozenset()
    brackets = ((OPEN, CLOSE), (ROOT, END_ROOT))
    return {(opening, *each, closing) for each in inner for opening, closing in brackets}


@jax.jit
def masks(ids: jax.Array, lengths: jax.Array, words: jax.Array, limits: jax.Array) -> jax.Array:
    grammar = TreeGrammar(alphabet=ALPHABET, words=words, limits=limits)
    mask = permitted_pieces(
        [Pieces(vocabulary=WIDTH), grammar], ids, lengths, width=WIDTH, ended=lengths >= limits
    )
    return jnp.broadcast_to(mask, (*ids.shape[:2], WIDTH))


def written(
    requests: list[tuple[int, int]],
) -> tuple[list[set[Sequence]], list[set[Sequence]]]:
    """What can be written of each (words, limit), and all beginnings of it that were come by."""
    live: list[list[Sequence]] = [[()] for _ in requests]
    complete: list[set[Sequence]] = [set() for _ in requests]
    begun: list[set[Sequence]] = [{()} for _ in requests]
    words, limits = (jnp.asarray(each) for each in zip(*requests, strict=True))
    for length in range(ROOM):
        ids = np.full((len(requests), BEAMS, ROOM), PAD, np.int32)
        for row, prefixes in enumerate(live):
            assert len(prefixes) <= BEAMS
            for beam, prefix in enumerate(prefixes):
                ids[row, beam, :length] = prefix
        lengths = jnp.full(len(requests), length)
        permitted = np.asarray(masks(jnp.asarray(ids), lengths, words, limits))
        for row, prefixes in enumerate(live):
            live[row] = []
            for beam, prefix in enumerate(prefixes):
                for piece in np.flatnonzero(permitted[row, beam]).tolist():
                    if piece == EOS:
                        complete[row].add(prefix)
                    else:
                        live[row].append((*prefix, piece))
            begun[row] |= set(live[row])
    assert not any(live)
    return complete, begun


def test_every_tree_can_be_written_and_every_beginning_ends_as_one() -> None:
    """By enumeration: for each number of words, every limit from the least that has a tree."""
    requests = [
        (words, limit)
        for words, most in ((0, 3), (1, 9), (2, 8), (3, 9))
        for limit in range(words + 2 * bool(words), most + 1)
    ]
    complete, begun = written(requests)
    for (words, limit), found, beginnings in zip(requests, complete, begun, strict=True):
        wanted = well_formed(words, limit)
        assert found == wanted, (words, limit)
        prefixes = {each[:length] for each in wanted for length in range(len(each) + 1)}
        assert beginnings == prefixes, (words, limit)
    sizes = {request: len(found) for request, found in zip(requests, complete, strict=True)}
    # By hand: (A t ), and with one more bracket inside; each with two tags and two roots.
    assert (sizes[0, 3], sizes[1, 3], sizes[1, 5]) == (1, 4, 8)


def test_an_alphabet_is_of_whole_constituents_and_all_tags() -> None:
    expected = ((OPEN, CLOSE), (ROOT, END_ROOT))
    assert Alphabet(constituents=expected, roots=(ROOT,), tags=(NOUN, VERB)) == ALPHABET
    half = Alphabet.of({"(A": 4, ")B": 5, "N": 6, "-LRB-": 7})
    assert half == Alphabet(constituents=(), roots=(), tags=(6, 7))


def test_without_room_for_a_tree_nothing_but_the_end_is_left() -> None:
    """What comes of it is repaired, and that is counted."""
    ids = jnp.full((1, 1, ROOM), PAD)
    mask = masks(ids, jnp.asarray([0]), jnp.asarray([3]), jnp.asarray([4]))
    assert np.flatnonzero(mask).tolist() == [EOS]
