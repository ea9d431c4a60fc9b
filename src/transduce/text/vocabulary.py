"""The SentencePiece vocabulary that source and target share.

`Vocabulary.decode` inverts `Vocabulary.encode` for every text without NUL and newline, as long as
the vocabulary keeps characters as they are (identity normalisation) and can spell all of them
(byte fallback). SentencePiece writes a space as U+2581, so that a U+2581 of the text would come
back as a space; as no text has a newline, the newline stands for U+2581 inside.

A vocabulary of trees has a piece of its own for each of their symbols, `<tree:NP>` for NP.
SentencePiece knows these as control symbols, which no text gives: only what `encode_target` reads
has them. The model file alone says that they are there.
"""

import functools
import hashlib
import io
import itertools
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import sentencepiece
from etils import epath

from transduce.arrays import BOS, EOS, PAD, UNK
from transduce.config import RequestError, VocabularyConfig
from transduce.text.locks import locked
from transduce.text.sampling import UnigramSampler, sample_bpe

_SPACE, _UNKNOWN, _BOUNDARY = "\u2581", "\u2585", "\t"
"""Characters that SentencePiece's trainer keeps for itself."""

_SYMBOL = re.compile(r"<tree:(.+)>")


class Vocabulary:
    """Pieces with ids 0 to `len` - 1, from a SentencePiece model file. Can be pickled."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Reads the model file at `path`.

        Raises `RequestError` when there is none, when it is not a model, or when its special
        symbols have other ids than ours.
        """
        try:
            data = epath.Path(path).read_bytes()
            self._processor = sentencepiece.SentencePieceProcessor()
            self._processor.load_from_serialized_proto(data)
            self._is_unigram = _is_unigram(self._processor)
        except OSError as error:
            raise RequestError(f"{path}: cannot read the vocabulary: {error.strerror}") from error
        except RuntimeError as error:
            raise RequestError(f"{path}: is not a SentencePiece model") from error
        model = self._processor
        ids = (model.pad_id(), model.bos_id(), model.eos_id(), model.unk_id())
        if ids != (PAD, BOS, EOS, UNK):
            raise RequestError(
                f"{path}: padding, begin, end and unknown must be pieces 0, 1, 2 and 3, not "
                f"{', '.join(map(str, ids))}: train it with --pad_id=0 --bos_id=1 --eos_id=2 "
                "--unk_id=3"
            )
        self.fingerprint = hashlib.sha256(data).hexdigest()[:16]
        """Of the model file."""
        controls = filter(model.is_control, range(model.piece_size()))
        named = ((_SYMBOL.fullmatch(model.id_to_piece(index)), index) for index in controls)
        self.symbols: Mapping[str, int] = {name[1]: index for name, index in named if name}
        """Of trees, with their ids; empty in a vocabulary of text."""

    def __len__(self) -> int:
        return self._processor.piece_size()

    def pieces(self) -> list[tuple[str, float]]:
        """Every piece, with the score that decides between segmentations."""
        model = self._processor
        return [(model.id_to_piece(index), model.get_score(index)) for index in range(len(self))]

    def names(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The pieces of `ids`, as the vocabulary spells them: "▁" is a space, "</s>" EOS."""
        return tuple(self._processor.id_to_piece(list(ids)))

    def word_starts(self) -> np.ndarray:
        """For each id, whether a word of text begins with its piece: a space and what follows."""
        return np.array([name.startswith(_SPACE) for name in self.names(range(len(self)))])

    def id_of(self, piece: str) -> int:
        """The id of the piece that `names` spells so. Raises `KeyError` when there is none."""
        index = self._processor.piece_to_id(piece)
        if self._processor.id_to_piece(index) != piece:
            raise KeyError(piece)
        return index

    def encode(self, text: str) -> list[int]:
        """Ids of the pieces of `text`, then EOS."""
        return [*self._processor.encode(text.replace(_SPACE, "\n")), EOS]

    def encode_many(self, texts: Iterable[str]) -> list[list[int]]:
        """`encode` of each text, on all cores."""
        rows = self._processor.encode([text.replace(_SPACE, "\n") for text in texts])
        return [[*row, EOS] for row in rows]

    def encode_target(self, text: str) -> list[int]:
        """Ids of the pieces of a target, then EOS.

        Where there are symbols of trees, a word that is one, divided from others by single
        spaces, is its piece; all else is text.
        """
        if not self.symbols:
            return self.encode(text)
        ids: list[int] = []
        words = text.split(" ") if text else []
        for are_symbols, run in itertools.groupby(words, key=self.symbols.__contains__):
            if are_symbols:
                ids += [self.symbols[word] for word in run]
            else:
                ids += self.encode(" ".join(run))[:-1]
        return [*ids, EOS]

    def encode_targets(self, texts: Iterable[str]) -> list[list[int]]:
        """`encode_target` of each text; on all cores where there are no symbols of trees."""
        if not self.symbols:
            return self.encode_many(texts)
        return [self.encode_target(text) for text in texts]

    def sample(self, text: str, rng: np.random.Generator, rate: float) -> list[int]:
        """Ids of a random segmentation of `text`, then EOS; it depends on the arguments alone.

        BPE: every merge is left out with probability `rate` (BPE-dropout, Provilkov et al. 2020).
        Unigram: a segmentation of probability p is drawn in proportion to p^a with
        a = (1 - rate) / rate (subword regularisation, Kudo 2018): nearly always the best one when
        rate is near 0, by its probability at 0.5, all alike near 1; Kudo's a = 0.1 is rate 0.91.

        `rate` must be above 0 and below 1.
        """
        normalized = self._processor.normalize(text.replace(_SPACE, "\n"))
        if self._is_unigram:
            pieces = self._unigram.sample(normalized, rng, (1 - rate) / rate)
        else:
            pieces = sample_bpe(normalized, self._scores, rng, rate)
        ids: list[int] = []
        for piece in pieces:
            for index in self._spell(piece):
                # Unknown characters in a row are one unknown piece.
                if index != UNK or ids[-1:] != [UNK]:
                    ids.append(index)
        return [*ids, EOS]

    def _spell(self, piece: str) -> list[int]:
        """The id of a piece; of a character that is none, those of its bytes."""
        index = self._processor.piece_to_id(piece)
        if index != UNK or not self._processor.is_byte(self._processor.piece_to_id("<0x00>")):
            return [index]
        return [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in piece.encode()]

    @functools.cached_property
    def _scores(self) -> dict[str, float]:
        model = self._processor
        return {
            piece: score
            for index, (piece, score) in enumerate(self.pieces())
            if not (model.is_control(index) or model.is_unknown(index) or model.is_byte(index))
        }

    @functools.cached_property
    def _unigram(self) -> UnigramSampler:
        # SentencePiece's penalty of an unknown character is 10 below the worst piece.
        scores = self._scores
        return UnigramSampler(scores, max(map(len, scores)), min(scores.values()) - 10)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids` up to the first EOS; PAD and BOS are left out.

        Never has a newline, whatever the ids. Raises `IndexError` for an id that is no piece.
        """
        kept: list[int] = []
        for index in map(int, ids):
            if index == EOS:
                break
            if index not in (PAD, BOS):
                kept.append(index)
        if not self.symbols:
            return self._text(kept)
        parts: list[str] = []
        for are_symbols, run in itertools.groupby(kept, key=self._symbol_names.__contains__):
            if are_symbols:
                parts += [self._symbol_names[index] for index in run]
            else:
                parts.append(self._text(list(run)))
        return " ".join(parts)

    def _text(self, ids: list[int]) -> str:
        return self._processor.decode(ids).replace("\n", _SPACE)

    @functools.cached_property
    def _symbol_names(self) -> dict[int, str]:
        return {index: symbol for symbol, index in self.symbols.items()}


def _is_unigram(processor: sentencepiece.SentencePieceProcessor) -> bool:
    """Only unigram models can list their best segmentations."""
    try:
        processor.nbest_encode("a", nbest_size=1)
    except RuntimeError:
        return False
    return True


def train_vocabulary(
    sentences: Iterable[str],
    *,
    config: VocabularyConfig,
    path: str | os.PathLike[str],
    symbols: Sequence[str] = (),
) -> None:
    """Trains a SentencePiece model of exactly `config.size` pieces on `sentences`, into `path`.

    The `symbols` of trees are among the pieces. All the sentences given are used, whatever their
    length. The same sentences give the same file. Raises `RequestError` when they are too few for
    so many pieces or have too many characters for so few, and when the file cannot be written;
    then there is no file.
    """
    failures: list[BaseException] = []
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_trainable(sentences, failures),
            model_writer=model,
            model_type=config.kind,
            vocab_size=config.size,
            character_coverage=config.character_coverage,
            byte_fallback=config.byte_fallback,
            normalization_rule_name=config.normalization,
            remove_extra_whitespaces=False,
            max_sentence_length=2**30,
            num_threads=16,  # the result depends on it: never the number of cores
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            control_symbols=[f"<tree:{symbol}>" for symbol in symbols],
            minloglevel=2,
        )
    except RuntimeError as error:
        if failures:
            raise failures[0] from None
        raise _explain(error, config) from error
    _write(path, model.getvalue())


def _trainable(sentences: Iterable[str], failures: list[BaseException]) -> Iterator[str]:
    """`sentences` such that the trainer takes them whole; what stops them goes to `failures`.

    The trainer leaves out sentences with U+2585, takes U+2581 for a space, and strips "\\r" from
    the end. A tab stands in for the first two and protects the third, as no piece has a tab. So
    all but "\\r" are always spelt in bytes; so are characters that occur only in the names of
    symbols, such as <s>.
    """
    reserved = str.maketrans({_SPACE: _BOUNDARY, _UNKNOWN: _BOUNDARY})
    try:
        for sentence in sentences:
            kept = sentence.translate(reserved) if not sentence.isascii() else sentence
            yield kept + _BOUNDARY if kept.endswith("\r") else kept
    except BaseException as error:
        # SentencePiece makes a RuntimeError of it.
        failures.append(error)
        raise


def _explain(error: RuntimeError, config: VocabularyConfig) -> Exception:
    """The trainer's error as a `RequestError` where the sentences or the size are to blame."""
    text = str(error)
    if found := re.search(r"size too high.*<= (\d+)", text):
        return RequestError(
            f"data.vocabulary.size {config.size} is too large for this training text: "
            f"it gives at most {found[1]} pieces"
        )
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", text):
        return RequestError(
            f"data.vocabulary.size {config.size} is too small: the special symbols, bytes and "
            f"characters of this training text alone are {found[1]} pieces (or lower "
            "data.vocabulary.character_coverage)"
        )
    if "sentences_.empty()" in text:
        return RequestError("the training text for the vocabulary has no words")
    return error


def _write(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes the whole file or, with a `RequestError`, nothing."""
    final = epath.Path(path)
    temporary = final.parent / f".{final.name}.{secrets.token_hex(4)}"
    try:
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
            temporary.replace(final)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise RequestError(f"{path}: cannot write the vocabulary: {error.strerror}") from error


def _train_once(
    path: Path,
    sentences: Callable[[], Iterable[str]],
    *,
    config: VocabularyConfig,
    symbols: Sequence[str],
) -> None:
    """Of several that want the vocabulary at `path` one trains it, and the others wait."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_suffix(".lock")):
            if not path.exists():
                train_vocabulary(sentences(), config=config, path=path, symbols=symbols)
    except OSError as error:
        raise RequestError(
            f"{path}: cannot keep the vocabulary: {error}; $TRANSDUCE_CACHE names the folder"
        ) from error


def open_vocabulary(
    path: str | os.PathLike[str],
    *,
    config: VocabularyConfig,
    sentences: Callable[[], Iterable[str]],
    symbols: Sequence[str] = (),
    kept: Path | None = None,
) -> Vocabulary:
    """The vocabulary at `path`, which is made first when there is none.

    It is a copy of `config.source_model` if that is set, else of `kept`, and if that is not there
    either trained on `sentences()`, with pieces for the `symbols` of trees, and left in `kept` for
    other runs. Raises `RequestError` when the one at `path` has another
    size than `config.size`, when it lacks some of `symbols` or has some where none are wanted, and
    when `config.source_model` and `config.target_model` differ in their pieces: source and target
    share one table.
    """
    if not epath.Path(path).exists():
        if config.source_model:
            source, target = Vocabulary(config.source_model), Vocabulary(config.target_model)
            if source.pieces() != target.pieces():
                raise RequestError(
                    f"{config.source_model} ({len(source)} pieces) and {config.target_model} "
                    f"({len(target)} pieces) are different vocabularies: source and target share "
                    "one table of embeddings, so both must be one shared vocabulary"
                )
            _write(path, epath.Path(config.source_model).read_bytes())
        elif kept is None:
            train_vocabulary(sentences(), config=config, path=path, symbols=symbols)
        else:
            _train_once(kept, sentences, config=config, symbols=symbols)
            _write(path, kept.read_bytes())
    vocabulary = Vocabulary(path)
    if missing := [symbol for symbol in symbols if symbol not in vocabulary.symbols]:
        raise RequestError(
            f"{path}: has no piece for {len(missing)} symbols of the training trees, such as "
            f"{missing[0]}: train a vocabulary with them (a new workdir, no "
            "data.vocabulary.source_model, no training.warm_start)"
        )
    if vocabulary.symbols and not symbols:
        raise RequestError(
            f"{path}: is a vocabulary of trees, and no corpus is a treebank: use one of text"
        )
    if not config.source_model and len(vocabulary) != config.size:
        raise RequestError(
            f"{path} holds {len(vocabulary)} pieces, but data.vocabulary.size is {config.size}: "
            f"set it to {len(vocabulary)}, or use a new workdir"
        )
    return vocabulary
