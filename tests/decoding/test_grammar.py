"""Only trees may be written, and all of them can be."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from transduce.arrays import EOS, PAD
from transduce.decoding.constraints import Pieces, permitted_pieces
from transduce.decoding.grammar import OPENINGS, Alphabet, TreeGrammar
from transduce.text.trees_as_text import ANY, COLON, COMMA, LEFT, QUOTE, RIGHT, STOP, WORD

UNKNOWN, OPEN, CLOSE, ROOT, END_ROOT, NOUN, PERIOD = 3, 4, 5, 6, 7, 8, 9
WIDTH, ROOM, BEAMS = 10, 10, 512
SYMBOLS = {"(A": OPEN, ")A": CLOSE, "(TOP": ROOT, ")TOP": END_ROOT, "N": NOUN, ".": PERIOD}
ALPHABET = Alphabet.of(SYMBOLS)

MAY_HAVE = {ANY: (NOUN, PERIOD), WORD: (NOUN,), STOP: (PERIOD,)}
"""Tags, by the kind of a word."""

type Sequence = tuple[int, ...]


@functools.cache
def forests(kinds: Sequence, room: int) -> frozenset[Sequence]:
    """All sequences of tags and constituents (A ...) over some words, of at most `room` symbols."""
    if not kinds:
        return frozenset([()])
    found: set[Sequence] = set()
    for tag in MAY_HAVE[kinds[0]]:
        if room:
            found |= {(tag, *rest) for rest in forests(kinds[1:], room - 1)}
    for inside in range(1, len(kinds) + 1):
        if room > 2:
            for inner in forests(kinds[:inside], room - 2):
                for rest in forests(kinds[inside:], room - 2 - len(inner)):
                    found.add((OPEN, *inner, CLOSE, *rest))
    return frozenset(sequence for sequence in found if len(sequence) <= room)


def well_formed(kinds: Sequence, limit: int) -> set[Sequence]:
    """All trees over words, of at most `limit` symbols; TOP is around all words or nowhere."""
    if not kinds:
        return {()}
    inner = forests(kinds, limit - 2) if limit > 2 else frozenset()
    brackets = ((OPEN, CLOSE), (ROOT, END_ROOT))
    return {(opening, *each, closing) for each in inner for opening, closing in brackets}


@jax.jit
def masks(ids: jax.Array, lengths: jax.Array, kinds: jax.Array, limits: jax.Array) -> jax.Array:
    grammar = TreeGrammar(alphabet=ALPHABET, kinds=kinds, limits=limits)
    mask = permitted_pieces(
        [Pieces(vocabulary=WIDTH), grammar], ids, lengths, width=WIDTH, ended=lengths >= limits
    )
    return jnp.broadcast_to(mask, (*ids.shape[:2], WIDTH))


def written(
    requests: list[tuple[Sequence, int]],
) -> tuple[list[set[Sequence]], list[set[Sequence]]]:
    """What can be written of each (kinds, limit), and all beginnings of it that were come by."""
    live: list[list[Sequence]] = [[()] for _ in requests]
    complete: list[set[Sequence]] = [set() for _ in requests]
    begun: list[set[Sequence]] = [{()} for _ in requests]
    kinds = jnp.asarray([[*kinds, *[-1] * (4 - len(kinds))] for kinds, _ in requests])
    limits = jnp.asarray([limit for _, limit in requests])
    for length in range(ROOM):
        ids = np.full((len(requests), BEAMS, ROOM), PAD, np.int32)
        for row, prefixes in enumerate(live):
            assert len(prefixes) <= BEAMS
            for beam, prefix in enumerate(prefixes):
                ids[row, beam, :length] = prefix
        lengths = jnp.full(len(requests), length)
        permitted = np.asarray(masks(jnp.asarray(ids), lengths, kinds, limits))
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
    """By enumeration: for each number of words, every limit from the least that has a tree.

    Tags are of the kinds of words: punctuation's where there is punctuation, and nowhere else.
    """
    sentences: list[tuple[Sequence, int]] = [
        *(((), 3), ((ANY,), 9), ((ANY, ANY), 8), ((ANY, ANY, ANY), 9)),
        *(((WORD,), 9), ((STOP,), 5), ((WORD, STOP), 8), ((STOP, ANY, WORD), 9)),
    ]
    requests = [
        (kinds, limit)
        for kinds, most in sentences
        for limit in range(len(kinds) + 2 * bool(kinds), most + 1)
    ]
    complete, begun = written(requests)
    for (kinds, limit), found, beginnings in zip(requests, complete, begun, strict=True):
        wanted = well_formed(kinds, limit)
        assert found == wanted, (kinds, limit)
        prefixes = {each[:length] for each in wanted for length in range(len(each) + 1)}
        assert beginnings == prefixes, (kinds, limit)
    sizes = {request: len(found) for request, found in zip(requests, complete, strict=True)}
    # By hand: (A t ), and with one more bracket inside; each with two tags and two roots.
    assert (sizes[(), 3], sizes[(ANY,), 3], sizes[(ANY,), 5]) == (1, 4, 8)
    # A word has one tag here, and so has a full stop.
    assert (sizes[(WORD,), 3], sizes[(WORD,), 5], sizes[(STOP,), 5]) == (2, 4, 4)


def test_an_alphabet_is_of_whole_constituents_and_all_tags() -> None:
    expected = ((OPEN, CLOSE), (ROOT, END_ROOT))
    assert (
        Alphabet(constituents=expected, roots=(ROOT,), tags=((NOUN, WORD), (PERIOD, STOP)))
        == ALPHABET
    )
    half = Alphabet.of({"(A": 4, ")B": 5, "N": 6, "-LRB-": 7})
    assert half == Alphabet(constituents=(), roots=(), tags=((6, WORD), (7, LEFT)))


def test_the_kind_of_a_word_counts_where_there_is_a_tag_of_it() -> None:
    words = ["cell", ".", ",", "-LRB-", "-", "CD4+", "'s"]
    assert ALPHABET.kinds(words) == (WORD, STOP, ANY, ANY, ANY, WORD, WORD)
    full = Alphabet.of({"N": 4, ".": 5, ",": 6, ":": 7, "''": 8, "-LRB-": 9, "-RRB-": 10})
    words = ["?", ",", ";", '"', "[", "-RCB-", ":", "--", "’"]
    assert full.kinds(words) == (STOP, COMMA, COLON, QUOTE, LEFT, RIGHT, ANY, ANY, ANY)


def test_so_many_constituents_are_opened_and_no_more_before_the_next_tag() -> None:
    width = OPENINGS + 2
    # The openings allowed, then a tag, and again; and one opening after the tag.
    again = [OPEN] * OPENINGS + [NOUN, OPEN]
    for beginning, may_open in (
        ([OPEN] * (OPENINGS - 1), True),
        ([OPEN] * OPENINGS, False),
        (again, True),
    ):
        ids = np.full((1, 1, width), PAD, np.int32)
        ids[0, 0, : len(beginning)] = beginning
        lengths = jnp.asarray([len(beginning)])
        mask = masks(jnp.asarray(ids), lengths, jnp.full((1, 3), WORD), jnp.asarray([100]))
        assert (mask[0, 0, OPEN], mask[0, 0, NOUN]) == (may_open, True)


def test_without_room_for_a_tree_nothing_but_the_end_is_left() -> None:
    """What comes of it is repaired, and that is counted."""
    ids = jnp.full((1, 1, ROOM), PAD)
    mask = masks(ids, jnp.asarray([0]), jnp.asarray([[WORD] * 3 + [-1]]), jnp.asarray([4]))
    assert np.flatnonzero(mask).tolist() == [EOS]
