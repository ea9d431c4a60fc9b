"""A mask under which nothing but a tree over a sentence's words can be written."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from transduce.arrays import EOS, Array, Bool, Int
from transduce.text.treebank import ROOTS
from transduce.text.trees_as_text import ANY, is_tag, kind_of_tag, kind_of_word

OPENINGS = 12
"""Constituents that may be opened one after the other, without a tag between them. In the 36,000
trees of GENIA and CRAFT it is never more than 8; a model that does not know what to do with a word
opens them as long as it may."""


@dataclass(frozen=True, kw_only=True)
class Alphabet:
    """The pieces that trees are written with, as ids."""

    constituents: tuple[tuple[int, int], ...]
    """The opening and the closing bracket of each category."""
    roots: tuple[int, ...]
    """Those of the opening brackets that can only come first."""
    tags: tuple[tuple[int, int], ...]
    """With the kind of each."""

    @classmethod
    def of(cls, symbols: Mapping[str, int]) -> "Alphabet":
        """That of a vocabulary's symbols. A bracket without its counterpart is left out."""
        opened = sorted(symbol[1:] for symbol in symbols if symbol.startswith("("))
        labels = [label for label in opened if f"){label}" in symbols]
        return cls(
            constituents=tuple((symbols[f"({label}"], symbols[f"){label}"]) for label in labels),
            roots=tuple(symbols[f"({label}"] for label in labels if label in ROOTS),
            tags=tuple(
                (index, kind_of_tag(name)) for name, index in symbols.items() if is_tag(name)
            ),
        )

    def kinds(self, words: Iterable[str]) -> tuple[int, ...]:
        """Those of a sentence's words, ANY where there is no tag of the kind."""
        known = {kind for _, kind in self.tags}
        found = map(kind_of_word, words)
        return tuple(kind if kind in known else ANY for kind in found)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class TreeGrammar:
    """Only well-formed sequences, in the sense of `trees_as_text`, that end within the limit.

    A tag is of the kind of its word, where that is not ANY (see `kind_of_word`): so a word that is
    passed over, or given two tags, is noticed at the next punctuation.

    Of n words, t tags written and d constituents open, n - t tags and d closing brackets are still
    needed. A constituent is opened only if there is room for its two brackets besides these, so
    that every beginning can be finished; an opening bracket also needs a word to come, and fewer
    than OPENINGS just before it. With a limit of at least n + 2 every other well-formed sequence
    within it whose tags are of the kinds can be written.

    There is no state: the constituent to be closed is that of the last bracket that raised the
    depth to what it is now.
    """

    alphabet: Alphabet = field(metadata={"static": True})
    kinds: Int[Array, "B W"]
    """Of the n words of a row; then -1."""
    limits: Int[Array, "B"]
    """Of pieces before EOS."""

    def narrow(
        self, permitted: Bool[Array, "#B #K V"], ids: Int[Array, "B K T"], lengths: Int[Array, "B"]
    ) -> Bool[Array, "#B #K V"]:
        openings, closings, roots, tags, counterparts = self._tables(permitted.shape[-1])
        words = jnp.sum(self.kinds >= 0, axis=-1)
        places = jnp.arange(ids.shape[2])[None, None]
        written = places < lengths[:, None, None]
        opens = written & openings[ids]
        changes = opens.astype(jnp.int32) - (written & closings[ids])
        depths = jnp.cumsum(changes, axis=-1)  # [B, K, T]
        depth = depths[..., -1]
        tagged = jnp.sum(written & (tags[ids] > 0), axis=-1)
        missing = words[:, None] - tagged
        kind = jnp.take_along_axis(self.kinds, tagged, axis=-1, mode="clip")[..., None]
        room = (self.limits - lengths)[:, None]
        begun = (lengths > 0)[:, None]
        innermost = jnp.max(jnp.where(opens & (depths == depth[..., None]), places, 0), axis=-1)
        closing = counterparts[jnp.take_along_axis(ids, innermost[..., None], axis=-1)]
        last = jnp.max(jnp.where(written & ~opens, places, -1), axis=-1)
        opened = lengths[:, None] - 1 - last  # just now, one after the other

        may_open = (missing > 0) & (missing + depth + 2 <= room) & (~begun | (depth > 0))
        may_open &= opened < OPENINGS
        may_tag = (missing > 0) & (depth > 0)
        may_close = (depth > 0) & (opened == 0) & ((depth > 1) | (missing == 0))
        may_end = (missing == 0) & (depth == 0)
        pieces = jnp.arange(permitted.shape[-1])[None, None]
        return permitted & (
            (may_open[..., None] & openings[pieces] & (~begun[..., None] | ~roots[pieces]))
            | (may_tag[..., None] & (tags[pieces] > 0) & ((kind == ANY) | (kind == tags[pieces])))
            | (may_close[..., None] & (pieces == closing))
            | (may_end[..., None] & (pieces == EOS))
        )

    def _tables(self, width: int) -> tuple[Array, ...]:
        """Of each piece: whether it is an opening or a closing bracket, or a root's.

        And the kind of a tag, 0 of all else; the closing bracket of an opening one, -1 of all else.
        """
        openings, closings, roots = np.zeros((3, width), bool)
        tags, counterparts = np.zeros(width, np.int32), np.full(width, -1)
        for opening, closing in self.alphabet.constituents:
            openings[opening] = closings[closing] = True
            counterparts[opening] = closing
        roots[list(self.alphabet.roots)] = True
        for tag, kind in self.alphabet.tags:
            tags[tag] = kind
        return tuple(map(jnp.asarray, (openings, closings, roots, tags, counterparts)))
