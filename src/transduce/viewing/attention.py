"""The attention of one model over one pair, with the tokens that its rows and columns stand for."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from transduce.arrays import BOS, Array, Batch, Float, Tokens
from transduce.config import RequestError
from transduce.decoding.blocks import rectangle, width_for
from transduce.model.heads import KINDS
from transduce.model.observed import observe
from transduce.model.transformer import Transformer, with_dtype
from transduce.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Every head's weights, in float32 or wider, and three lists of tokens.

    | kind    | a row is                     | a column is                  |
    |---------|------------------------------|------------------------------|
    | encoder | a token of `source`          | a token of `source`          |
    | decoder | a token of `target`, chosen  | a token of `read`            |
    | cross   | a token of `target`, chosen  | a token of `source`          |

    Tokens are spelt as the vocabulary spells its pieces, and a tree's symbols plainly ("(NP").
    `source` and `target` end with EOS. To choose token j of `target` the decoder reads BOS and
    the tokens before j; so `read` is `target` moved right by one, BOS first, and row j of
    "decoder" is 0 after column j. Each row sums to 1.
    """

    source: tuple[str, ...]
    read: tuple[str, ...]
    target: tuple[str, ...]
    weights: dict[str, Float[np.ndarray, "L N T S"]]
    """By kind."""

    def rows(self, kind: str) -> tuple[str, ...]:
        """The tokens that look."""
        return self.source if kind == "encoder" else self.target

    def columns(self, kind: str) -> tuple[str, ...]:
        """The tokens that are looked at."""
        return self.read if kind == "decoder" else self.source


def attention_of(
    model: Transformer, vocabulary: Vocabulary, source: Sequence[int], target: Sequence[int]
) -> Attention:
    """The attention with which `model` reads `source` and chooses each id of `target`.

    Both end with EOS. Computed in float32, or float64 if the model is. Raises `RequestError` when
    one has more ids than the model has learned positions.
    """
    config = model.config
    if config.positions == "learned":
        for name, ids in (("--source", source), ("--target", target)):
            if len(ids) > config.learned_positions:
                raise RequestError(
                    f"{name} has {len(ids)} tokens with its end, more than "
                    f"model.learned_positions ({config.learned_positions})"
                )
    wide = jnp.promote_types(model.dtype, jnp.float32)
    # Padded to few widths, so that few shapes are compiled.
    sides = [
        Tokens.single(jnp.asarray(rectangle([ids], rows=1, width=width_for(len(ids)))))
        for ids in (source, target)
    ]
    found = _observe(with_dtype(model, str(wide)), Batch(source=sides[0], target=sides[1]))
    lengths = {"encoder": (len(source), len(source)), "decoder": (len(target), len(target))}
    lengths["cross"] = (len(target), len(source))
    return Attention(
        source=_names(vocabulary, source),
        read=_names(vocabulary, [BOS, *target[:-1]]),
        target=_names(vocabulary, target),
        weights={kind: _cut(getattr(found, kind), *lengths[kind]) for kind in KINDS},
    )


_observe = jax.jit(observe)


def _names(vocabulary: Vocabulary, ids: Sequence[int]) -> tuple[str, ...]:
    symbols = {index: symbol for symbol, index in vocabulary.symbols.items()}
    names = zip(ids, vocabulary.names(ids), strict=True)
    return tuple(symbols.get(index, name) for index, name in names)


def _cut(weights: Array, rows: int, columns: int) -> np.ndarray:
    return np.asarray(weights)[:, 0, :, :rows, :columns]
