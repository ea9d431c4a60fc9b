"""The configuration of data: corpora, vocabulary, filters, and how batches are made of them."""

import math
import re
from dataclasses import dataclass, field
from typing import Literal

import regex
import tyro

from transduce.config_checks import fraction, not_negative, positive, require


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """Where the sentence pairs of an experiment come from."""

    name: str
    """Names the prepared data set."""
    source_language: str
    target_language: str
    builder: Literal["files", "phrasebook", "wmt14", "tfds", "treebank"] = "files"
    """Parallel text files; the phrasebook that transduce makes itself; WMT 2014 between English
    and German or French, downloaded; a data set that TFDS prepared, as it lies on the disk; or
    trees, whose words are the source and whose symbols are the target."""
    train: tuple[str, str] = ("", "")
    """Of files: source and target, plain or gzip, one sentence a line, or both SGML (.sgm or
    .sgm.gz); relative to data.folder. Of a treebank: a file of trees, plain or gzip, or a folder of
    them, and "" for all of it or sections of the Penn Treebank, such as "02-21" or "22"."""
    dev: tuple[str, str] = ("", "")
    """As train; of a treebank it may be left out, as ("", "")."""
    test: tuple[str, str] = ("", "")
    """As train; may be left out, as ("", "")."""
    path: str = ""
    """Of tfds: the folder with the data set's dataset_info.json. Of wmt14: where archives that were
    downloaded by hand may lie, under their own names. Relative to data.folder."""
    weight: float = 1.0
    """How often a training pair is drawn, compared with one of a corpus of weight 1."""
    tag: str = ""
    """Put before every source line with a space, in all splits, but not before blank ones. What is
    translated or scored later must bring its tag along."""

    def __post_init__(self) -> None:
        require(
            bool(self.name) and self.name.replace("_", "a").isalnum() and self.name.isascii(),
            f"a corpus' name is made of letters, digits and underscores, not {self.name!r}",
        )
        require(
            self.source_language != self.target_language,
            f"corpus {self.name}: source_language and target_language must differ",
        )
        for split in ("train", "dev", "test"):
            named = [bool(path) for path in getattr(self, split)]
            if self.builder == "files":
                require(
                    all(named) or (split == "test" and not any(named)),
                    f"corpus {self.name}: {split} must name a source and a target file",
                )
            elif self.builder == "treebank":
                require(
                    named[0] or not (named[1] or split == "train"),
                    f"corpus {self.name}: {split} must name a file or folder of trees first",
                )
                if named[1]:
                    section_numbers(getattr(self, split)[1])
            else:
                require(
                    not any(named),
                    f"corpus {self.name}: {split} names files, which only builders files and "
                    "treebank read",
                )
        require(
            self.builder != "tfds" or bool(self.path),
            f"corpus {self.name}: path must name the data set's folder",
        )
        require(
            self.builder in ("tfds", "wmt14") or not self.path,
            f"corpus {self.name}: path is for builders tfds and wmt14, not for {self.builder}",
        )
        languages = {self.source_language, self.target_language}
        require(
            self.builder != "wmt14" or languages in ({"en", "de"}, {"en", "fr"}),
            f"corpus {self.name}: wmt14 has en with de or fr, not {self.source_language} with "
            f"{self.target_language}",
        )
        require(
            0 < self.weight < math.inf,
            f"corpus {self.name}: weight must be positive, not {self.weight}",
        )
        require(
            self.tag == self.tag.strip() and self.tag.isprintable(),
            f"corpus {self.name}: tag must be printable and not begin or end with a space, "
            f"not {self.tag!r}",
        )


def section_numbers(sections: str) -> list[int]:
    """The numbers in "22", "02-21" or "00,02-21". Raises `RequestError` for anything else."""
    numbers: list[int] = []
    for part in sections.split(","):
        found = re.fullmatch(r"([0-9]{1,2})(?:-([0-9]{1,2}))?", part)
        wanted = range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
        require(bool(wanted), f'sections are such as "22" or "02-21", not {sections!r}')
        numbers += wanted
    return numbers


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """The SentencePiece vocabulary that source and target share."""

    size: int = 37_000
    """Pieces, the special symbols included, and those of trees where the corpora are treebanks."""
    kind: Literal["bpe", "unigram"] = "bpe"
    normalization: Literal["identity", "nmt_nfkc", "nfkc"] = "identity"
    """SentencePiece's rule; identity keeps every character as it was."""
    byte_fallback: bool = True
    """Spell characters that are not in the vocabulary in UTF-8 bytes; else they are unknown."""
    character_coverage: float = 0.9995
    """Share of the training text's characters that get a piece of their own."""
    training_sentences: int = 4_000_000
    """At most this many sentences, evenly taken from both sides, train the vocabulary."""
    source_model: str = ""
    """An existing SentencePiece model to use instead of training one."""
    target_model: str = ""
    """The same for the target side; as there is one table, both must hold the same pieces."""

    def __post_init__(self) -> None:
        positive("data.vocabulary", self, "size training_sentences")
        coverage = self.character_coverage
        require(
            0 < coverage <= 1,
            f"data.vocabulary.character_coverage must be in (0, 1], not {coverage}",
        )
        require(
            bool(self.source_model) == bool(self.target_model),
            "data.vocabulary.source_model and target_model go together: set both or neither",
        )


@dataclass(frozen=True, kw_only=True)
class FilterConfig:
    """Training pairs that are left out, each counted, besides blank and too long ones."""

    length_ratio: float = 0.0
    """The longer side has at most this many times the pieces of the shorter; 0: any."""
    identical: bool = False
    """Leave out pairs whose sides are the same text."""
    source_script: str = ""
    """Unicode script (Latin, Cyrillic, Han, ...) of at least half of a side's letters; "": any."""
    target_script: str = ""
    duplicates: bool = False
    """Leave out pairs that came before, in any corpus."""

    def __post_init__(self) -> None:
        require(
            self.length_ratio == 0 or self.length_ratio >= 1,
            f"data.filters.length_ratio must be 0 or at least 1, not {self.length_ratio}",
        )
        for name in ("source_script", "target_script"):
            script = getattr(self, name)
            require(
                not script or _is_script(script),
                f"data.filters.{name} must be a Unicode script such as Latin, not {script!r}",
            )


def _is_script(name: str) -> bool:
    try:
        return bool(regex.compile(rf"\p{{Script={name}}}"))
    except regex.error:
        return False


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Corpora, vocabulary, and how batches are made of them."""

    corpora: tyro.conf.Fixed[tuple[CorpusConfig, ...]] = ()
    """Set in the experiment file."""
    folder: str = ""
    """Where relative paths of corpora start; empty: $TRANSDUCE_DATA, else ../shared/data."""
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    filters: FilterConfig = field(default_factory=FilterConfig)
    readers: int = 16
    """Streams that shuffle and pack on their own; the order of examples depends on this number.
    Where it is no multiple of mesh.data x mesh.fsdp, several processes may run the same ones."""
    rows: int = 128
    """Rows of a global batch, over all readers, devices and accumulated micro-batches."""
    row_length: int = 256
    """Tokens of a row on either side; pairs with a side that does not fit are left out."""
    packing_bins: int = 32
    """Rows that a reader fills at a time, first fit; more waste less padding."""
    subword_sampling: float = 0.0
    """Of training text only; 0: off. BPE: the share of merges left out at random. Unigram: a
    segmentation of probability p is drawn in proportion to p^((1 - r) / r)."""
    prefetch: int = 2
    """Batches made ready ahead of the step."""
    workers: int = 0
    """Processes that read, tokenise and pack; 0: a thread does. The batches are the same."""
    pretokenized: bool = False
    """Tokenise the training pairs once, into ArrayRecord files beside the prepared corpus."""
    seed: int = 1
    """Of shuffling and subword sampling."""

    def __post_init__(self) -> None:
        positive("data", self, "readers rows row_length packing_bins prefetch")
        not_negative("data", self, "seed workers")
        require(
            not (self.pretokenized and self.subword_sampling),
            "data.pretokenized and data.subword_sampling exclude each other: what is sampled "
            "differs each time",
        )
        fraction("data", self, "subword_sampling")
        require(
            self.rows % self.readers == 0,
            f"data.rows ({self.rows}) must be a multiple of data.readers ({self.readers})",
        )
        names = [corpus.name for corpus in self.corpora]
        require(len(set(names)) == len(names), f"corpora have the same name: {names}")
        trees = [corpus.builder == "treebank" for corpus in self.corpora]
        require(
            all(trees) or not any(trees),
            "a treebank stands beside corpora of text: train a parser on treebanks alone",
        )

    @property
    def is_of_trees(self) -> bool:
        """Whether what is learnt is parsing: the corpora are treebanks."""
        return any(corpus.builder == "treebank" for corpus in self.corpora)
