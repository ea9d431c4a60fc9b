"""Everything an experiment reads: its splits, its vocabulary, and the pairs it trains on."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

import sentencepiece
from etils import epath

from transduce.config import CorpusConfig, DataConfig, RequestError
from transduce.parallel import hosts
from transduce.pipeline.readers import Corpus, Source
from transduce.pipeline.selection import Pairs, Selection, select
from transduce.pipeline.tokenized import tokenized
from transduce.text.corpora import cache_folder, prepare, training_sentences
from transduce.text.prepared import Split
from transduce.text.trees_as_text import symbols
from transduce.text.vocabulary import Vocabulary, open_vocabulary


@dataclass(frozen=True, kw_only=True)
class Data:
    """What `prepare_data` made ready."""

    training: tuple[Corpus, ...]
    splits: Mapping[str, Pairs]
    """dev, and test where a corpus has one; of several corpora, one after the other."""
    vocabulary: Vocabulary
    selections: Mapping[str, Selection]
    """By the name of the corpus."""
    fingerprints: Mapping[str, str]
    """Of each split that was read, by "corpus/split"."""


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

    `vocabulary_rows` is the size of the model's table. Of several processes the first prepares
    before the others. Raises `RequestError` when a corpus or the vocabulary cannot be used.
    """
    if not config.corpora:
        raise RequestError("data.corpora is empty: the experiment file must name a corpus")
    # What it makes of files the others find, if they look where the first does.
    with hosts.first_ahead():
        corpora = {corpus.name: prepare(corpus, folder=config.folder) for corpus in config.corpora}
        train = {name: splits["train"] for name, splits in corpora.items()}
        if not any("dev" in splits for splits in corpora.values()):
            raise RequestError(
                "no corpus has a dev split: name dev files, or add a corpus that has one"
            )
        trees = [pairs for pairs in train.values() if config.is_of_trees]
        vocabulary = open_vocabulary(
            vocabulary_path,
            config=config.vocabulary,
            sentences=lambda: training_sentences(
                [*train.values()],
                limit=config.vocabulary.training_sentences,
                sources_alone=config.is_of_trees,
            ),
            symbols=symbols(target.split() for pairs in trees for _, target in pairs),
            kept=_kept(config, train.values()),
        )
        if len(vocabulary) > vocabulary_rows:
            raise RequestError(
                f"{vocabulary_path}: has {len(vocabulary)} pieces, more than "
                f"model.vocabulary_size ({vocabulary_rows})"
            )
        sources: dict[str, Source] = {
            name: tokenized(pairs, vocabulary) if config.pretokenized else pairs
            for name, pairs in train.items()
        }
    selections = select(train, vocabulary, row_length=config.row_length, filters=config.filters)
    declared: tuple[CorpusConfig, ...] = config.corpora
    training = tuple(
        Corpus(source=sources[corpus.name], kept=selections[corpus.name].kept, weight=corpus.weight)
        for corpus in declared
    )
    others = {
        name: tuple(splits[name] for splits in corpora.values() if name in splits)
        for name in ("dev", "test")
    }
    return Data(
        training=training,
        splits={name: _joined(parts) for name, parts in others.items() if parts},
        vocabulary=vocabulary,
        selections=selections,
        fingerprints={
            f"{corpus}/{name}": split.fingerprint
            for corpus, splits in corpora.items()
            for name, split in splits.items()
        },
    )


def _kept(config: DataConfig, train: Iterable[Split]) -> Path:
    """Where the vocabulary lies that other runs have trained on the same text in the same way."""
    made_of = (
        sentencepiece.__version__,
        astuple(config.vocabulary),
        [pairs.fingerprint for pairs in train],
        config.is_of_trees,
    )
    digest = hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]
    return cache_folder() / f"vocabulary-{digest}.model"


def _joined(parts: tuple[Pairs, ...]) -> Pairs:
    return parts[0] if len(parts) == 1 else _Chain(parts)
