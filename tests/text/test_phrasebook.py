"""The demo's corpus: what its grammar gives, and what its test split holds out."""

import os
import subprocess
import sys
from itertools import pairwise

import pytest

from transduce.text.phrasebook import is_held_out, phrasebook, sentences_by_split, words
from transduce.text.phrasebook.draw import PRONOUNS
from transduce.text.phrasebook.grammar import (
    Clause,
    NounPhrase,
    Pair,
    both,
    imperative,
    subject_of,
)
from transduce.text.phrasebook.lexicon import (
    ACTIONS,
    ACTIVITIES,
    ARRIVE,
    DEPART,
    FITTING,
    MONTHS,
    NOUN,
)
from transduce.text.phrasebook.numbers import clock, date, number_words, price

VERB = {verb.base: verb for verb in (*ACTIONS, *ACTIVITIES)}


@pytest.fixture(scope="module")
def splits():
    return phrasebook()


@pytest.fixture(scope="module")
def sentences():
    return sentences_by_split()


# The corpus as a whole.
def test_sizes_of_the_splits(splits):
    assert {split: len(pairs) for split, pairs in splits.items()} == {
        "train": 23_000,
        "dev": 400,
        "test": 500,
    }


def test_no_sentence_of_either_language_occurs_twice(splits):
    pairs = [pair for split in splits.values() for pair in split]
    assert len({english for english, _ in pairs}) == len(pairs)
    assert len({german for _, german in pairs}) == len(pairs)


def test_sentences_look_like_sentences(splits):
    for english, german in (pair for split in splits.values() for pair in split):
        for text in (english, german):
            assert text[0].isupper()
            assert text[-1] in ".?"
            assert text == " ".join(text.split())
            assert 3 <= len(text.split()) <= 20
        assert english[-1] == german[-1]


def test_every_word_of_the_test_split_is_in_the_training_split(splits):
    def forms(split, side):
        return {word.strip(".,?") for pair in splits[split] for word in pair[side].split()}

    assert forms("test", 0) <= forms("train", 0)
    assert forms("test", 1) <= forms("train", 1)


def test_each_test_sentence_has_a_pairing_that_no_training_or_dev_sentence_has(sentences):
    seen = {
        pairing for split in ("train", "dev") for s in sentences[split] for pairing in s.pairings
    }
    assert all(any(pairing not in seen for pairing in s.pairings) for s in sentences["test"])
    assert not any(is_held_out(pairing) for pairing in seen)


def test_every_kind_of_pairing_is_tested(sentences):
    kinds = {p[0] for s in sentences["test"] for p in s.pairings if is_held_out(p)}
    assert kinds == {
        "adjective noun",
        "verb object",
        "time activity",
        "number noun",
        "hour minute",
        "day month",
        "euros cents",
    }


def test_held_out_adjectives_never_stand_by_their_noun_in_the_training_text(splits):
    """Read off the English text alone, without the record of pairings."""

    def neighbours(pairs):
        found = set()
        for english, _ in pairs:
            text = english.strip(".?").split()
            found |= set(pairwise(text))
        return found

    in_train, in_test = neighbours(splits["train"]), neighbours(splits["test"])
    held_out = {
        (adjective, noun)
        for kind, adjectives in FITTING.items()
        for adjective in adjectives
        for noun in NOUN.values()
        if noun.kind == kind and is_held_out(("adjective noun", adjective, noun.english))
        for noun in (noun.english, noun.english_plural)
    }
    assert not held_out & in_train
    assert len(held_out & in_test) > 50


def test_held_out_dates_are_not_in_the_training_text(splits):
    def dates(pairs):
        text = " ".join(english.replace(".", "") for english, _ in pairs).split()
        return {
            (day, month)
            for day, of, month in zip(text, text[1:], text[2:], strict=False)
            if of == "of" and month in MONTHS
        }

    held_out = {
        (date(day, month, "e").english.split()[0], month)
        for month in MONTHS
        for day in range(1, 31)
        if is_held_out(("day month", str(day), month))
    }
    assert not held_out & dates(splits["train"])
    assert len(held_out & dates(splits["test"])) > 5


def test_the_hash_seed_of_python_changes_nothing():
    program = (
        "import hashlib; from transduce.text.phrasebook import phrasebook; "
        "print(hashlib.sha256(repr(phrasebook()).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_words_are_told_apart_by_language_and_bare_of_marks():
    assert words(("In winter?", "Im Winter, in")) == {
        ("en", "In"),
        ("en", "winter"),
        ("de", "Im"),
        ("de", "Winter"),
        ("de", "in"),
    }


# The grammar, against forms from a German grammar book.
# English: nominative, accusative, dative.
SINGULAR = """
    the red coat: der rote Mantel, den roten Mantel, dem roten Mantel
    an old ship: ein altes Schiff, ein altes Schiff, einem alten Schiff
    a tall man: ein großer Mann, einen großen Mann, einem großen Mann
    my new map: mein neuer Stadtplan, meinen neuen Stadtplan, meinem neuen Stadtplan
    our expensive lamp: unsere teure Lampe, unsere teure Lampe, unserer teuren Lampe
    this nice neighbour: dieser nette Nachbar, diesen netten Nachbarn, diesem netten Nachbarn
    no egg: kein Ei, kein Ei, keinem Ei
    your sister: Ihre Schwester, Ihre Schwester, Ihrer Schwester
    """


@pytest.mark.parametrize("line", [line.strip() for line in SINGULAR.strip().splitlines()])
def test_singular_noun_phrases(line):
    english, german = line.split(": ")
    determiner, *adjective, noun = english.split()
    determiner = "a" if determiner == "an" else determiner
    phrase = NounPhrase(NOUN[noun], determiner, *adjective)
    assert phrase.english == english
    assert [
        phrase.german("nominative"),
        phrase.german("accusative"),
        phrase.german("dative"),
    ] == german.split(", ")


@pytest.mark.parametrize(
    ("phrase", "english", "nominative", "dative"),
    [
        (
            NounPhrase(NOUN["guest"], "the", "young", plural=True),
            "the young guests",
            "die jungen Gäste",
            "den jungen Gästen",
        ),
        (
            NounPhrase(NOUN["apple"], "a", "fresh", plural=True),
            "fresh apples",
            "frische Äpfel",
            "frischen Äpfeln",
        ),
        (
            NounPhrase(NOUN["car"], "their", "new", plural=True),
            "their new cars",
            "ihre neuen Autos",
            "ihren neuen Autos",
        ),
        (
            NounPhrase(NOUN["woman"], "this", "polite", plural=True),
            "these polite women",
            "diese höflichen Frauen",
            "diesen höflichen Frauen",
        ),
        (
            NounPhrase(NOUN["glass"], "", "small", number=3),
            "three small glasses",
            "drei kleine Gläser",
            "drei kleinen Gläsern",
        ),
        (
            NounPhrase(NOUN["tourist"], "no", plural=True),
            "no tourists",
            "keine Touristen",
            "keinen Touristen",
        ),
    ],
)
def test_plural_noun_phrases(phrase, english, nominative, dative):
    assert phrase.english == english
    assert phrase.german("nominative") == phrase.german("accusative") == nominative
    assert phrase.german("dative") == dative


def test_prepositions_contract_with_the_article():
    in_, to = Pair("in", "in"), Pair("to", "zu")
    box, basket = NOUN["box"], NOUN["basket"]
    assert both(NounPhrase(basket, "the", "old"), "dative", in_).german == "im alten Korb"
    assert both(NounPhrase(box, "the"), "dative", in_).german == "in der Kiste"
    assert both(NounPhrase(basket, "the"), "accusative", in_).german == "in den Korb"
    assert both(NounPhrase(NOUN["church"], "the"), "dative", to).german == "zur Kirche"
    assert both(NounPhrase(NOUN["castle"], "the"), "dative", to).german == "zum Schloss"
    assert both(NounPhrase(basket, "this"), "dative", in_).german == "in diesem Korb"


TRAIN = subject_of(NounPhrase(NOUN["train"], "the"), Pair("to Munich", "nach München"))
SISTER = both(NounPhrase(NOUN["sister"], "my"), "accusative")
TOMORROW = Pair("tomorrow", "morgen")
YESTERDAY = Pair("yesterday", "gestern")


def test_a_separable_prefix_parts_from_its_verb_and_joins_it_again():
    at = clock(2, 30)
    departs = Clause(TRAIN, DEPART, (), "habit", Pair(f"at {at.english}", f"um {at.german}"))
    assert departs.english() == "the train to Munich departs at half past two"
    assert departs.german() == "der Zug nach München fährt um halb drei ab"
    assert departs.german("first") == "fährt der Zug nach München um halb drei ab"
    assert departs.german("last") == "der Zug nach München um halb drei abfährt"
    arrived = Clause(TRAIN, ARRIVE, (), "past")
    assert arrived.german() == "der Zug nach München ist angekommen"
    assert arrived.german("last") == "der Zug nach München angekommen ist"
    window = both(NounPhrase(NOUN["window"], "the"), "accusative")
    request = imperative(VERB["open"], f"bitte {window.german}")
    assert request == "machen Sie bitte das Fenster auf"


def test_the_finite_verb_is_second_after_a_fronted_time():
    calling = Clause(PRONOUNS["I"], VERB["call"], (SISTER,), "present", TOMORROW)
    assert calling.english(fronted=True) == "tomorrow I am calling my sister"
    assert calling.german(fronted=True) == "morgen rufe ich meine Schwester an"
    assert calling.german() == "ich rufe morgen meine Schwester an"


def test_infinitives_and_participles_close_the_clause():
    wanting = Clause(PRONOUNS["she"], VERB["call"], (SISTER,), "want to", TOMORROW)
    assert wanting.english() == "she wants to call my sister tomorrow"
    assert wanting.german() == "sie will morgen meine Schwester anrufen"
    assert wanting.german("last") == "sie morgen meine Schwester anrufen will"
    home = Clause(PRONOUNS["we"], VERB["go home"], (), "past", YESTERDAY)
    assert home.english() == "we went home yesterday"
    assert home.german() == "wir sind gestern nach Hause gegangen"
    assert home.german("last") == "wir gestern nach Hause gegangen sind"
    working = Clause(PRONOUNS["he"], VERB["work at the office"], (), "past")
    assert working.german() == "er hat im Büro gearbeitet"


def test_questions_and_negations():
    called = Clause(PRONOUNS["you"], VERB["call"], (SISTER,), "past")
    assert called.english(question=True) == "did you call my sister"
    assert called.german("first") == "haben Sie meine Schwester angerufen"
    assert called.english(negative=True) == "you did not call my sister"
    assert called.german(negative=True) == "Sie haben meine Schwester nicht angerufen"
    home = Clause(PRONOUNS["they"], VERB["go home"], (), "can", TOMORROW)
    assert home.english(negative=True) == "they cannot go home tomorrow"
    assert home.german(negative=True) == "sie können morgen nicht nach Hause gehen"
    brother = subject_of(NounPhrase(NOUN["brother"], "my"))
    car = both(NounPhrase(NOUN["car"], "a"), "accusative")
    needing = Clause(brother, VERB["need"], (car,), "present")
    assert needing.english(question=True) == "does my brother need a car"
    assert needing.german("first") == "braucht mein Bruder ein Auto"


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (1, "one", "eins"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (76, "seventy-six", "sechsundsiebzig"),
        (100, "one hundred", "hundert"),
        (101, "one hundred and one", "hunderteins"),
        (212, "two hundred and twelve", "zweihundertzwölf"),
        (631, "six hundred and thirty-one", "sechshunderteinunddreißig"),
        (999, "nine hundred and ninety-nine", "neunhundertneunundneunzig"),
    ],
)
def test_numbers(number, english, german):
    assert number_words(number) == (english, german)


@pytest.mark.parametrize(
    ("hour", "minute", "english", "german"),
    [
        (1, 0, "one o'clock", "ein Uhr"),
        (12, 0, "twelve o'clock", "zwölf Uhr"),
        (8, 5, "five past eight", "fünf nach acht"),
        (1, 15, "quarter past one", "Viertel nach eins"),
        (2, 20, "twenty past two", "zwanzig nach zwei"),
        (2, 25, "twenty-five past two", "fünf vor halb drei"),
        (2, 30, "half past two", "halb drei"),
        (12, 30, "half past twelve", "halb eins"),
        (2, 35, "twenty-five to three", "fünf nach halb drei"),
        (9, 40, "twenty to ten", "zwanzig vor zehn"),
        (12, 45, "quarter to one", "Viertel vor eins"),
        (6, 55, "five to seven", "fünf vor sieben"),
    ],
)
def test_times_of_day(hour, minute, english, german):
    assert clock(hour, minute) == (english, german)


@pytest.mark.parametrize(
    ("day", "month", "ending", "english", "german"),
    [
        (1, "January", "e", "first of January", "erste Januar"),
        (3, "May", "en", "third of May", "dritten Mai"),
        (7, "March", "en", "seventh of March", "siebten März"),
        (8, "July", "e", "eighth of July", "achte Juli"),
        (12, "October", "en", "twelfth of October", "zwölften Oktober"),
        (19, "December", "en", "nineteenth of December", "neunzehnten Dezember"),
        (20, "February", "e", "twentieth of February", "zwanzigste Februar"),
        (22, "April", "en", "twenty-second of April", "zweiundzwanzigsten April"),
        (24, "June", "en", "twenty-fourth of June", "vierundzwanzigsten Juni"),
        (30, "May", "e", "thirtieth of May", "dreißigste Mai"),
    ],
)
def test_dates(day, month, ending, english, german):
    assert date(day, month, ending) == (english, german)


def test_prices():
    assert price(2, 50) == ("two euros and fifty cents", "zwei Euro fünfzig")
    assert price(21, 0) == ("twenty-one euros", "einundzwanzig Euro")
