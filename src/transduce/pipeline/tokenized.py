"""Training pairs tokenised once, for when tokenising on the fly cannot feed the devices."""

import secrets
from itertools import batched
from pathlib import Path

import numpy as np
from array_record.python import (
    array_record_data_source,
    array_record_module,  # pyright: ignore[reportAttributeAccessIssue] no stubs: compiled
)

from transduce.config import RequestError
from transduce.pipeline.readers import Rows
from transduce.text.corpora import cache_folder
from transduce.text.locks import locked
from transduce.text.prepared import Split
from transduce.text.vocabulary import Vocabulary

_PAIRS_AT_A_TIME = 8192


class TokenizedPairs:
    """Pairs of ids, EOS included, in an ArrayRecord file; can be pickled.

    A record is int32s: the length of the source, its ids, the target's ids.
    """

    def __init__(self, path: Path) -> None:
        self._records = array_record_data_source.ArrayRecordDataSource(str(path))

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Rows:
        record = np.frombuffer(self._records[index], np.int32)
        length = record[0]
        return {"source": record[1 : 1 + length], "target": record[1 + length :]}


def tokenized(pairs: Split, vocabulary: Vocabulary) -> TokenizedPairs:
    """The ids of `pairs`, from a file in the cache folder that is made when there is none.

    Raises `RequestError` when it cannot be written; then there is none.
    """
    name = f"tokens-{pairs.fingerprint}-{vocabulary.fingerprint}.array_record"
    path = cache_folder() / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_suffix(".lock")):
            if not path.exists():
                _write(path, pairs, vocabulary)
    except OSError as error:
        raise RequestError(
            f"{path}: cannot write the tokenised corpus: {error}; $TRANSDUCE_CACHE names the folder"
        ) from error
    return TokenizedPairs(path)


def _write(path: Path, pairs: Split, vocabulary: Vocabulary) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        # In groups of one: every record can be read on its own.
        writer = array_record_module.ArrayRecordWriter(str(temporary), "group_size:1")
        for block in batched(pairs, _PAIRS_AT_A_TIME):
            sources, targets = zip(*block, strict=True)
            encoded = vocabulary.encode_many(sources), vocabulary.encode_targets(targets)
            for source, target in zip(*encoded, strict=True):
                writer.write(np.array([len(source), *source, *target], np.int32).tobytes())
        writer.close()
        temporary.replace(path)
    except RuntimeError as error:
        # What ArrayRecord makes of a full disk and the like.
        raise OSError(str(error)) from error
    finally:
        temporary.unlink(missing_ok=True)
