"""The grammar of the synthetic phrasebook: noun phrases and clauses.

Everything is built on both sides from the same choice, so that an English phrase determines its
German translation.
"""

from dataclasses import dataclass, replace
from typing import Literal

from transduce.text.phrasebook.lexicon import ADJECTIVES, MODALS, POSSESSIVES, Case, Noun, Verb
from transduce.text.phrasebook.numbers import Pair, number_words

Person = Literal["I", "he", "they"]  # "they" stands for we, they and the polite you too
Order = Literal["first", "second", "last"]
NOTHING = Pair("", "")


# Noun phrases. The columns of the endings are masculine, feminine, neuter and plural.
_Endings = dict[Case, tuple[str, str, str, str]]
_COLUMNS = {"m": 0, "f": 1, "n": 2}
_ARTICLES: _Endings = {
    "nominative": ("der", "die", "das", "die"),
    "accusative": ("den", "die", "das", "die"),
    "dative": ("dem", "der", "dem", "den"),
}
_STRONG: _Endings = {
    "nominative": ("er", "e", "es", "e"),
    "accusative": ("en", "e", "es", "e"),
    "dative": ("em", "er", "em", "en"),
}
# Adjectives after "der" and "dieser".
_WEAK: _Endings = {
    "nominative": ("e", "e", "e", "en"),
    "accusative": ("en", "e", "e", "en"),
    "dative": ("en", "en", "en", "en"),
}
# Adjectives after "ein", "kein" and the possessives.
_MIXED: _Endings = {
    "nominative": ("er", "e", "es", "en"),
    "accusative": ("en", "e", "es", "en"),
    "dative": ("en", "en", "en", "en"),
}
_CONTRACTIONS = {"in dem": "im", "zu dem": "zum", "zu der": "zur"}


@dataclass(frozen=True, slots=True)
class NounPhrase:
    """A noun with a determiner ("the", "a", "this", "no", a possessive, or "" for none),
    and perhaps a number above one (which makes it plural) and an adjective."""

    noun: Noun
    determiner: str
    adjective: str = ""
    plural: bool = False
    number: int = 0

    @property
    def is_plural(self) -> bool:
        """Whether the phrase is in the plural."""
        return self.plural or self.number > 1

    @property
    def person(self) -> Person:
        """The person of the verb that goes with the phrase."""
        return "they" if self.is_plural else "he"

    @property
    def english(self) -> str:
        """The English phrase."""
        determiner = self.determiner
        if self.is_plural:
            determiner = {"a": "", "this": "these"}.get(determiner, determiner)
        count = number_words(self.number).english if self.number else ""
        noun = self.noun.english_plural if self.is_plural else self.noun.english
        rest = join(count, self.adjective, noun)
        if determiner == "a" and rest[0] in "aeiou":
            determiner = "an"
        return join(determiner, rest)

    def german(self, case: Case) -> str:
        """The German phrase in `case`."""
        column = 3 if self.is_plural else _COLUMNS[self.noun.gender]
        count = number_words(self.number).german if self.number else ""
        determiner, endings = self._german_determiner(case, column)
        adjective = ""
        if self.adjective:
            adjective = _stem(ADJECTIVES[self.adjective]) + endings[case][column]
        return join(determiner, count, adjective, self._german_noun(case))

    def _german_determiner(self, case: Case, column: int) -> tuple[str, _Endings]:
        plural = column == 3
        if self.determiner == "" or (self.determiner == "a" and plural):
            return "", _STRONG
        if self.determiner == "the":
            return _ARTICLES[case][column], _WEAK
        if self.determiner == "this":
            return "dies" + _STRONG[case][column], _WEAK
        stem = {"a": "ein", "no": "kein", **POSSESSIVES}[self.determiner]
        # "Ein Tisch" and "ein Bett" have no ending where "dieser" and "dieses" have one.
        bare = _STRONG[case][column] == "es" or (case, column) == ("nominative", 0)
        return stem if bare else stem + _STRONG[case][column], _MIXED

    def _german_noun(self, case: Case) -> str:
        noun = self.noun
        if not self.is_plural:
            return noun.german if case == "nominative" else noun.german_oblique
        if case == "dative" and noun.german_plural[-1] not in "ns":
            return noun.german_plural + "n"
        return noun.german_plural


def imperative(verb: Verb, middle: str) -> str:
    """The polite German imperative: "machen Sie bitte das Fenster auf"."""
    return join(verb.infinitive, "Sie", middle, verb.complement, verb.prefix)


def join(*words: str) -> str:
    """The words that are not empty, with blanks between."""
    return " ".join([word for word in words if word])


def both(phrase: NounPhrase, case: Case, preposition: Pair = NOTHING) -> Pair:
    """A noun phrase on both sides, after a preposition where one is given."""
    german = join(preposition.german, phrase.german(case))
    for apart, contracted in _CONTRACTIONS.items():
        if german.startswith(f"{apart} "):
            german = german.replace(apart, contracted, 1)
    return Pair(join(preposition.english, phrase.english), german)


def _stem(adjective: str) -> str:
    if adjective == "teuer":
        return "teur"
    return adjective.removesuffix("e")


# Clauses.
@dataclass(frozen=True, slots=True)
class Subject:
    """A subject, the possessive that goes back to it, and the pronoun that takes it up again."""

    english: str
    german: str
    person: Person
    possessive: str = ""
    pronoun: Pair = NOTHING

    def again(self) -> "Subject":
        """The subject as a pronoun."""
        return replace(self, english=self.pronoun.english, german=self.pronoun.german)


def subject_of(phrase: NounPhrase, more: Pair = NOTHING) -> Subject:
    """A noun phrase, and perhaps something after it ("to Munich"), as a subject."""
    return Subject(
        join(phrase.english, more.english),
        join(phrase.german("nominative"), more.german),
        phrase.person,
    )


BE = {"I": "am", "he": "is", "they": "are"}
SEIN = {"I": "bin", "he": "ist", "they": "sind"}
_HABEN = {"I": "habe", "he": "hat", "they": "haben"}


@dataclass(frozen=True, slots=True)
class Clause:
    """A subject and what it does, as yet without word order.

    `tense` is "present" (progressive where the English verb has it), "habit" (simple present),
    "past" (the German perfect), "future" (the German present) or a modal of the lexicon.
    In English `rest` follows the verb and the time follows `rest`; in German `rest` stands
    between the verbs and the time before it. Either may be fronted: the time then opens the
    clause.
    """

    subject: Subject
    verb: Verb
    rest: tuple[Pair, ...]
    tense: str
    time: Pair = NOTHING

    def english(
        self, *, negative: bool = False, question: bool = False, fronted: bool = False
    ) -> str:
        """The English clause; a question has its helper verb first."""
        helper, form = self._english_verb(helped=negative or question)
        negation = "not" if negative else ""
        if negation and helper == "can":
            helper, negation = "cannot", ""
        subject = self.subject.english
        opening = (helper, subject) if question else (subject, helper)
        rest = [pair.english for pair in self.rest]
        front, end = (self.time.english, "") if fronted else ("", self.time.english)
        return join(front, *opening, negation, form, *rest, end)

    def german(
        self, order: Order = "second", *, negative: bool = False, fronted: bool = False
    ) -> str:
        """The German clause, with its finite verb second in a statement (after the time if
        that is fronted), first in a question, last in a subordinate clause."""
        finite, closing = self._german_verb()
        subject, prefix = self.subject.german, self.verb.prefix
        front, time = (self.time.german, "") if fronted else ("", self.time.german)
        rest = [pair.german for pair in self.rest]
        inner = join(time, *rest, "nicht" if negative else "", self.verb.complement)
        if order == "last":
            # A separable prefix joins its verb again.
            end = closing + finite if closing == prefix else f"{closing} {finite}"
            return join(subject, inner, end)
        if order == "first" or front:
            return join(front, finite, subject, inner, closing)
        return join(subject, finite, inner, closing)

    def _english_verb(self, *, helped: bool) -> tuple[str, str]:
        """The helper verb, if there is one, and the form of the verb that follows it."""
        verb, tense, person = self.verb, self.tense, self.subject.person
        if tense == "present" and verb.progressive:
            return BE[person], verb.progressive
        if tense == "past":
            return ("did", verb.base) if helped else ("", verb.past)
        if tense == "future":
            return "will", verb.base
        if tense in ("can", "must", "may", "should"):
            return tense, verb.base
        if tense == "would like to":
            return "would", f"like to {verb.base}"
        base, third = verb.base, verb.third
        if tense == "want to":
            base, third = f"want to {verb.base}", f"wants to {verb.base}"
        if helped:
            return "does" if person == "he" else "do", base
        return "", third if person == "he" else base

    def _german_verb(self) -> tuple[str, str]:
        """The finite verb and what closes the clause."""
        verb, tense, person = self.verb, self.tense, self.subject.person
        if tense in MODALS:
            singular, plural = MODALS[tense]
            return plural if person == "they" else singular, verb.prefix + verb.infinitive
        if tense == "past":
            auxiliary = SEIN if verb.auxiliary == "ist" else _HABEN
            return auxiliary[person], verb.participle
        finite = {
            "I": verb.infinitive.removesuffix("n"),
            "he": verb.german_third,
            "they": verb.infinitive,
        }
        return finite[person], verb.prefix


def sentence(english: str, german: str, end: str = ".") -> Pair:
    """Both sides with a capital letter and a mark at the end."""
    return Pair(*(f"{text[0].upper()}{text[1:]}{end}" for text in (english, german)))
