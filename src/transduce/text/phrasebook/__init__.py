"""A synthetic English-German phrasebook, the corpus of the demo.

No sentence here was written by a person or taken from a text: all are drawn at random from a
small hand-written grammar over a small dictionary. The grammar has what makes the pair of
languages interesting: gender and case with their endings, plurals, the verb at the end of a
clause, separable verbs, inversion, "nicht" and "kein", numbers, prices, times of day and dates.
Each English sentence has one German translation and the other way round: "you" is always "Sie",
the simple past always the perfect.

**What is held out.** Most sentences bring together pairings of these kinds:

- `adjective noun`: "red" said of "bag", before it or after "is", in any number and case;
- `verb object`: "buy" with "bag" as its object, in any form;
- `time activity`: "tomorrow", or "if it rains", with "go home";
- `number noun`: "twenty-one" with what it counts: seats, or somebody's years;
- `hour minute`, `day month`, `euros cents`: the two parts of a time of day, a date, a price.

One pairing in ten is held out, chosen by its CRC-32. Every sentence of the test split contains
a pairing that is held out, and no sentence of the other two splits contains any. Every word form
of the test split, on either side, occurs in the training split. The dev split is like the
training split: new sentences, no new pairings.
"""

import zlib
from dataclasses import dataclass
from random import Random

from transduce.text.phrasebook.deeds import DEEDS
from transduce.text.phrasebook.draw import Draw, Pairing
from transduce.text.phrasebook.facts import FACTS
from transduce.text.phrasebook.grammar import Pair

TRAIN_SIZE, DEV_SIZE, TEST_SIZE = 23_000, 400, 500
TEMPLATES = DEEDS | FACTS


@dataclass(frozen=True, slots=True)
class Sentence:
    """A pair of sentences and the pairings that they bring together."""

    pair: Pair
    pairings: tuple[Pairing, ...]


def phrasebook() -> dict[str, list[tuple[str, str]]]:
    """The splits "train", "dev" and "test": (English, German) pairs, the same at every call."""
    return {
        split: [(sentence.pair.english, sentence.pair.german) for sentence in sentences]
        for split, sentences in sentences_by_split().items()
    }


def sentences_by_split() -> dict[str, list[Sentence]]:
    """The splits of `phrasebook` with each sentence's pairings.

    Raises ValueError where the grammar gives one English sentence two translations. Of two
    English sentences with one translation, the first drawn is kept.
    """
    rng = Random(2017)
    templates = [template for template, share in TEMPLATES.items() for _ in range(share)]
    german_of: dict[str, str] = {}
    used_german: set[str] = set()
    familiar: list[Sentence] = []
    unseen: list[Sentence] = []
    while len(familiar) < TRAIN_SIZE + DEV_SIZE:
        draw = Draw(rng)
        english, german = draw.pick(templates)(draw)
        if german_of.setdefault(english, german) != german:
            raise ValueError(f"two translations of {english!r}: {german_of[english]!r}, {german!r}")
        if german in used_german:
            continue
        used_german.add(german)
        sentence = Sentence(Pair(english, german), tuple(draw.pairings))
        (unseen if any(map(is_held_out, draw.pairings)) else familiar).append(sentence)
    # New sentences of the smaller templates get rarer, so the order drawn is not an even mix.
    familiar = _shuffled(familiar, rng)
    train, dev = familiar[:TRAIN_SIZE], familiar[TRAIN_SIZE:]
    known = {word for sentence in train for word in words(sentence.pair)}
    test = [s for s in _shuffled(unseen, rng) if known.issuperset(words(s.pair))]
    return {"train": train, "dev": dev, "test": test[:TEST_SIZE]}


def is_held_out(pairing: Pairing) -> bool:
    """Whether sentences with this pairing are kept for the test split."""
    return zlib.crc32("|".join(pairing).encode()) % 10 == 0


def words(pair: tuple[str, str]) -> set[tuple[str, str]]:
    """The word forms of both sides, each with its language."""
    return {
        (language, word.strip(".,?"))
        for language, text in zip(("en", "de"), pair, strict=True)
        for word in text.split()
    }


def _shuffled(sentences: list[Sentence], rng: Random) -> list[Sentence]:
    return sorted(sentences, key=lambda _: rng.random())
