"""Everything an experiment reads: its splits, its vocabulary, and the pairs it trains on."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from etils import epath

from transduce.config import DataConfig, RequestError
from transduce.pipeline.selection import Pairs, Selection, select
from transduce.text.corpora import prepare, training_sentences
from transduce.text.vocabulary import Vocabulary, open_vocabulary


@dataclass(frozen=True, kw_only=True)
class Data:
    """What `prepare_data` made ready."""

    splits: dict[str, Pairs]
    """train, dev, and test where a corpus has one; of several corpora, one after the other."""
    vocabulary: Vocabulary
    selection: Selection


@dataclass(frozen=True)
class _Chain:
    """Several corpora's pairs, one after the other."""

    parts: tuple[Pairs, ...]

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def __getitem__(self, index: int, /) -> tuple[str, str]:
        index = range(len(self))[index]
        for part in self.parts:
            if index < len(part):
                return part[index]
            index -= len(part)
        raise AssertionError("an index below len(self) lies in a part")

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return itertools.chain.from_iterable(self.parts)


def prepare_data(config: DataConfig, *, vocabulary_path: epath.Path, vocabulary_rows: int) -> Data:
    """Prepares the corpora, opens or trains the vocabulary and selects the training pairs.

    `vocabulary_rows` is the size of the model's table. Raises `RequestError` when a corpus or
    the vocabulary cannot be used.
    """
    if not config.corpora:
        raise RequestError("data.corpora is empty: the experiment file must name a corpus")
    corpora = [prepare(corpus, folder=config.folder) for corpus in config.corpora]
    splits: dict[str, Pairs] = {}
    for name in ("train", "dev", "test"):
        parts = tuple(corpus[name] for corpus in corpora if name in corpus)
        if parts:
            splits[name] = parts[0] if len(parts) == 1 else _Chain(parts)
    vocabulary = open_vocabulary(
        vocabulary_path,
        config=config.vocabulary,
        sentences=lambda: training_sentences(
            [corpus["train"] for corpus in corpora], limit=config.vocabulary.training_sentences
        ),
    )
    if len(vocabulary) > vocabulary_rows:
        raise RequestError(
            f"{vocabulary_path}: has {len(vocabulary)} pieces, more than "
            f"model.vocabulary_size ({vocabulary_rows})"
        )
    selection = select(splits["train"], vocabulary, row_length=config.row_length)
    return Data(splits=splits, vocabulary=vocabulary, selection=selection)
