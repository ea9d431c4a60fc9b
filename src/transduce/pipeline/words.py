"""Which words of source and target belong together, where that is known: in trees."""

import numpy as np

from transduce.pipeline.readers import Rows
from transduce.text.trees_as_text import is_tag
from transduce.text.vocabulary import Vocabulary


class WordNumbers:
    """Numbers the words of packed sources, and the tags of packed trees by their words."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        tags = [index for symbol, index in vocabulary.symbols.items() if is_tag(symbol)]
        self._begins = {
            "source": vocabulary.word_starts(),
            "target": np.isin(np.arange(len(vocabulary)), tags),
        }

    def __call__(self, rows: Rows) -> Rows:
        """For source and target, name_words: [B, T], as `arrays.Tokens` has it.

        A piece is of the last word that began in its sequence; EOS of the source goes with the
        last word. In the target only tags have a number.
        """
        source = self._count("source", rows)
        target = np.where(self._begins["target"][rows["target"]], self._count("target", rows), 0)
        return {"source_words": source, "target_words": target}

    def _count(self, name: str, rows: Rows) -> np.ndarray:
        segments, positions = rows[f"{name}_segment_ids"], rows[f"{name}_positions"]
        begins = self._begins[name][rows[name]] & (segments != 0)
        count = np.cumsum(begins, axis=1, dtype=np.int32)
        # What was counted before the first position of a sequence is of others.
        first = np.maximum(np.arange(count.shape[1]) - positions, 0)
        before = np.take_along_axis(count - begins, first, axis=1)
        return np.where(segments != 0, count - before, 0).astype(np.int32)
