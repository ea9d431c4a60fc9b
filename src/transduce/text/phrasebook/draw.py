"""The random choices of the synthetic phrasebook, and the record of the pairings they make."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from transduce.text.phrasebook.grammar import (
    NOTHING,
    Clause,
    NounPhrase,
    Person,
    Subject,
    both,
    subject_of,
)
from transduce.text.phrasebook.lexicon import (
    ACTIVITIES,
    FITTING,
    LYING,
    MONTHS,
    NOUNS,
    POSSESSIVES,
    TIMES,
    Case,
    Noun,
    Verb,
    nouns,
)
from transduce.text.phrasebook.numbers import Pair, clock, date, price

Pairing = tuple[str, str, str]  # its kind, then the two words or phrases that meet


def _pronoun(english: str, german: str, person: Person, possessive: str) -> Subject:
    return Subject(english, german, person, possessive, Pair(english, german))


PRONOUNS = {
    "I": _pronoun("I", "ich", "I", "my"),
    "you": _pronoun("you", "Sie", "they", "your"),
    "he": _pronoun("he", "er", "he", "his"),
    "she": _pronoun("she", "sie", "he", "her"),
    "we": _pronoun("we", "wir", "they", "our"),
    "they": _pronoun("they", "sie", "they", "their"),
}
RELATIVES = nouns("parent family")
CONTAINERS = nouns("suitcase bag box basket rucksack")
BY_FURNITURE = (Pair("on", "auf"), Pair("under", "unter"), Pair("next to", "neben"))


class Draw:
    """The choices behind one sentence."""

    def __init__(self, rng: Random) -> None:
        self.pairings: list[Pairing] = []
        # Of Python's random numbers, only those of `random()` are promised never to change.
        self._random = rng.random

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random() < probability

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(self._random() * (high - low + 1))

    def pick[T](self, options: Sequence[T]) -> T:
        """One of the options, each as likely."""
        return options[int(self._random() * len(options))]

    def pair(self, kind: str, first: str | int, second: str | int) -> None:
        """Record that the sentence brings these two together."""
        self.pairings.append((kind, str(first), str(second)))

    def noun_phrase(
        self,
        choices: Sequence[Noun],
        determiners: Sequence[str],
        *,
        adjective: float = 0.5,
        plural: float = 0.2,
    ) -> NounPhrase:
        """A noun of `choices`, with these probabilities of an adjective and of the plural."""
        noun = self.pick(choices)
        word = ""
        if noun.kind in FITTING and self.chance(adjective):
            word = self.pick(FITTING[noun.kind])
            self.pair("adjective noun", word, noun.english)
        many = self.chance(plural) and noun.kind not in ("parent", "transport")
        return NounPhrase(noun, self.pick(determiners), word, plural=many)

    def somebody(self, possessives: Sequence[str] = tuple(POSSESSIVES)) -> NounPhrase:
        """A person or somebody's relative."""
        if self.chance(0.5):
            return self.noun_phrase(RELATIVES, possessives, plural=0.15)
        return self.noun_phrase(NOUNS["person"], ("the", "this"))

    def subject(self, *, but: Sequence[str] = ("you",), pronoun: float = 0.5) -> Subject:
        """A pronoun, with this probability and none of `but`, or somebody."""
        if self.chance(pronoun):
            return self.pick([subject for name, subject in PRONOUNS.items() if name not in but])
        phrase = self.somebody()
        again = PRONOUNS["she" if phrase.noun.gender == "f" else "he"]
        if phrase.is_plural:
            again = PRONOUNS["they"]
        subject = subject_of(phrase)
        return replace(subject, possessive=again.possessive, pronoun=again.pronoun)

    def object(self, verb: Verb, subject: Subject, *, counted: float = 0.1) -> NounPhrase:
        """An object that suits the verb, counted with this probability ("three bags")."""
        determiners = [subject.possessive if word == "own" else word for word in verb.determiners]
        phrase = self.noun_phrase(verb.objects, determiners)
        if phrase.noun in RELATIVES:
            phrase = replace(phrase, determiner=subject.possessive)
        self.pair("verb object", verb.base, phrase.noun.english)
        if "a" in determiners and self.chance(counted):
            phrase = self.count(phrase, self.between(2, 12))
        return phrase

    def where(self, thing: Noun, case: Case, *, inside: str) -> Pair:
        """A place for a thing: in something, where it can lie, or by a piece of furniture."""
        if thing in LYING and self.chance(0.5):
            container = self.noun_phrase(CONTAINERS, ("the",), plural=0)
            return both(container, case, Pair(inside, "in"))
        furniture = self.noun_phrase(NOUNS["furniture"], ("the",), plural=0)
        return both(furniture, case, self.pick(BY_FURNITURE))

    def count(self, phrase: NounPhrase, number: int) -> NounPhrase:
        """The phrase with a number in place of its determiner."""
        self.pair("number noun", number, phrase.noun.english)
        return replace(phrase, determiner="", number=number)

    def action(
        self, subject: Subject, verbs: Sequence[Verb], tense: str, *, timed: float = 0.5
    ) -> Clause:
        """Somebody does something with an object, with this probability of a time."""
        verb = self.pick(verbs)
        rest = (both(self.object(verb, subject), verb.case),)
        if not verb.progressive:
            return Clause(subject, verb, rest, "present")
        return Clause(subject, verb, rest, tense, self.time(tense, timed))

    def activity(
        self,
        subject: Subject,
        tense: str,
        verbs: Sequence[Verb] = ACTIVITIES,
        *,
        timed: float = 1,
    ) -> Clause:
        """Somebody does something without an object, perhaps in company."""
        verb = self.pick(verbs)
        time = self.time(tense, timed)
        if time != NOTHING:
            self.pair("time activity", time.english, verb.base)
        if not verb.complement or self.chance(0.8):
            return Clause(subject, verb, (), tense, time)
        company = self.noun_phrase(RELATIVES, (subject.possessive,))
        return Clause(subject, verb, (both(company, "dative", Pair("with", "mit")),), tense, time)

    def time(self, tense: str, probability: float = 1) -> Pair:
        """A time that suits the tense, with this probability."""
        if not self.chance(probability):
            return NOTHING
        times = TIMES.get(tense, TIMES["present"])
        english = self.pick(tuple(times))
        return Pair(english, times[english])

    def clock(self) -> Pair:
        """A time of day."""
        hour, minute = self.between(1, 12), 5 * self.between(0, 11)
        self.pair("hour minute", hour, minute)
        return clock(hour, minute)

    def at_clock(self) -> Pair:
        """At a time of day."""
        time = self.clock()
        return Pair(f"at {time.english}", f"um {time.german}")

    def date(self, ending: str) -> Pair:
        """A day of the year, with the ending of the German ordinal."""
        month = self.pick(tuple(MONTHS))
        day = self.between(1, 28 if month == "February" else 30)
        self.pair("day month", day, month)
        return date(day, month, ending)

    def price(self, highest: int) -> Pair:
        """A price of two euros to `highest` and a little more."""
        euros, cents = self.between(2, highest), 10 * self.between(0, 9)
        self.pair("euros cents", euros, cents)
        return price(euros, cents)
