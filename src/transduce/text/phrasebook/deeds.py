"""Templates of the synthetic phrasebook about what people do, want, ask for and tell.

Each template chooses words and builds both sides of a sentence.
"""

from collections.abc import Callable
from dataclasses import replace

from transduce.text.phrasebook.draw import PRONOUNS, Draw
from transduce.text.phrasebook.facts import departing
from transduce.text.phrasebook.grammar import (
    BE,
    SEIN,
    Clause,
    both,
    imperative,
    join,
    sentence,
)
from transduce.text.phrasebook.lexicon import (
    ACTIONS,
    ACTIVITIES,
    ADJECTIVES,
    EVENTS,
    GIVING,
    LAY,
    LYING,
    MODALS,
    NOUNS,
    PLACE,
    STANDING,
    Verb,
)
from transduce.text.phrasebook.numbers import Pair

_VERBS = {verb.base: verb for verb in (*ACTIONS, *EVENTS, *ACTIVITIES)}


def _verbs(bases: str) -> list[Verb]:
    return [_VERBS[base] for base in bases.split(", ")]


REQUESTS = _verbs("open, close, call, pick up, help, repair, bring along, take along, buy, read")
DUTIES = _verbs("work in the garden, work at the office, learn German, go shopping, cook")
LEISURE = [verb for verb in ACTIVITIES if verb not in DUTIES]
TIRING = DUTIES + _verbs("swim in the lake, play football, dance")
OUTDOORS = _verbs(
    "swim in the lake, go for a walk, go to the market, work in the garden, play football, "
    "go out, sleep in the tent, travel to Munich, travel to Vienna, travel to Salzburg"
)
INDOORS = _verbs(
    "stay at home, go home, go to the cinema, go to the theatre, cook, play the piano, "
    "listen to music, watch television, eat at the restaurant, learn German"
)
# What one says that it will do, why it does, and the German with its verb last.
GOOD_WEATHER = (
    ("the sun shines", "the sun is shining", "die Sonne scheint"),
    ("the weather is good", "the weather is good", "das Wetter gut ist"),
)
BAD_WEATHER = (
    ("it rains", "it is raining", "es regnet"),
    ("it snows", "it is snowing", "es schneit"),
    ("the weather is bad", "the weather is bad", "das Wetter schlecht ist"),
)
SAYINGS = (
    Pair("I know that", "ich weiß, dass"),
    Pair("I think that", "ich glaube, dass"),
    Pair("we hope that", "wir hoffen, dass"),
    Pair("he says that", "er sagt, dass"),
    Pair("she writes that", "sie schreibt, dass"),
    Pair("it is nice that", "es ist schön, dass"),
    Pair("do you know whether", "wissen Sie, ob"),
)


def action(draw: Draw) -> Pair:
    """Tomorrow I am buying a red bag."""
    tense = draw.pick(("present", "past", "past", *MODALS))
    return _statement(draw, draw.action(draw.subject(), ACTIONS, tense, timed=0.6))


def event(draw: Draw) -> Pair:
    """I lost my new umbrella yesterday."""
    return _statement(draw, draw.action(draw.subject(), EVENTS, "past", timed=0.7))


def giving(draw: Draw) -> Pair:
    """She is showing the young doctor her old camera."""
    subject, verb = draw.subject(), draw.pick(GIVING)
    tense = draw.pick(("present", "past", "past", *MODALS))
    receiver = draw.somebody((subject.possessive,))
    rest = (both(receiver, "dative"), both(draw.object(verb, subject), "accusative"))
    return _statement(draw, Clause(subject, verb, rest, tense, draw.time(tense, 0.5)))


def putting(draw: Draw) -> Pair:
    """He put the glass on the small table."""
    subject = draw.subject()
    thing = draw.noun_phrase((*LYING, *STANDING), ("the", "this", subject.possessive))
    draw.pair("verb object", "put", thing.noun.english)
    where = draw.where(thing.noun, "accusative", inside="into")
    verb = LAY if thing.noun in LYING else PLACE
    tense = draw.pick(("present", "past", "must"))
    return _statement(draw, Clause(subject, verb, (both(thing, "accusative"), where), tense))


def activity(draw: Draw) -> Pair:
    """Every Sunday my brother plays football."""
    tense = draw.pick(("present", "past", "past", "habit", *MODALS))
    return _statement(draw, draw.activity(draw.subject(), tense))


def appointment(draw: Draw) -> Pair:
    """On the third of May we are travelling to Vienna. At half past two they want to dance."""
    clause = draw.activity(draw.subject(), draw.pick(("present", *MODALS)), timed=0)
    if draw.chance(0.5):
        return _statement(draw, replace(clause, time=draw.at_clock()))
    date = draw.date("en")
    time = Pair(f"on the {date.english}", f"am {date.german}")
    return _statement(draw, replace(clause, time=time))


def _statement(draw: Draw, clause: Clause) -> Pair:
    fronted = draw.chance(0.4)
    return sentence(clause.english(fronted=fronted), clause.german(fronted=fronted))


# Negations and questions.
def negation(draw: Draw) -> Pair:
    """I do not have a car. She did not find the key."""
    subject, verb = draw.subject(), draw.pick(ACTIONS)
    tense = draw.pick(("present", "past", "can", "want to")) if verb.progressive else "present"
    phrase = draw.object(verb, subject, counted=0)
    clause = Clause(subject, verb, (both(phrase, verb.case),), tense)
    english = clause.english(negative=True)
    if phrase.determiner != "a":
        return sentence(english, clause.german(negative=True))
    phrase = replace(phrase, determiner="no")
    return sentence(english, replace(clause, rest=(both(phrase, verb.case),)).german())


def idleness(draw: Draw) -> Pair:
    """My sister is not going to the cinema this evening."""
    # What begins with a capital ("Klavier spielen") would need "kein" or "nicht" after itself.
    verbs = [verb for verb in ACTIVITIES if not verb.complement[:1].isupper()]
    clause = draw.activity(draw.subject(), draw.pick(("present", "past", "can", "want to")), verbs)
    clause = replace(clause, rest=())
    fronted = draw.chance(0.4)
    return sentence(
        clause.english(negative=True, fronted=fronted),
        clause.german(negative=True, fronted=fronted),
    )


def question(draw: Draw) -> Pair:
    """Did you find my key? Can we open the window?"""
    tense = draw.pick(("present", "past", "past", "can", "must", "would like to"))
    subject = PRONOUNS["you"]
    if draw.chance(0.5):
        subject = draw.subject(but=("I",), pronoun=0.6)
    if draw.chance(0.6):
        clause = draw.action(subject, (*ACTIONS, *EVENTS) if tense == "past" else ACTIONS, tense)
    else:
        clause = draw.activity(subject, tense)
    return sentence(clause.english(question=True), clause.german("first"), "?")


# Subordinate clauses.
def report(draw: Draw) -> Pair:
    """I know that the train to Munich departs at half past two."""
    saying = draw.pick(SAYINGS)
    subject = draw.subject(but=("I", "you"), pronoun=0.3)
    tense = draw.pick(("present", "past", "want to"))
    kind = draw.between(0, 4)
    if kind == 0:
        clause = departing(draw)
    elif kind == 1:
        clause = draw.activity(subject, tense)
    elif kind == 2:
        clause = draw.action(subject, _verbs("find, see"), "past")
    else:
        clause = draw.action(subject, ACTIONS, tense)
    return sentence(
        f"{saying.english} {clause.english()}",
        f"{saying.german} {clause.german('last')}",
        "?" if saying.german.endswith("ob") else ".",
    )


def feeling(draw: Draw) -> Pair:
    """My father is sad because he lost his key."""
    subject, state = draw.subject(), draw.pick(("tired", "happy", "sad"))
    if state == "tired":
        why = draw.activity(subject.again(), "past", TIRING)
    else:
        verbs = _verbs("find, buy" if state == "happy" else "lose, forget, miss")
        why = draw.action(subject.again(), verbs, "past", timed=0.3)
    german = join(subject.german, SEIN[subject.person], ADJECTIVES[state])
    return sentence(
        join(subject.english, BE[subject.person], state, "because", why.english()),
        f"{german}, weil {why.german('last')}",
    )


def excuse(draw: Draw) -> Pair:
    """I cannot go home today because I must work at the office."""
    subject = draw.subject()
    clause = replace(draw.activity(subject, "can", LEISURE), rest=())
    duty = Clause(subject.again(), draw.pick(DUTIES), (), "must")
    return sentence(
        f"{clause.english(negative=True)} because {duty.english()}",
        f"{clause.german(negative=True)}, weil {duty.german('last')}",
    )


def weather(draw: Draw) -> Pair:
    """If it rains, we will stay at home. We are staying at home because it is raining."""
    verbs, weathers = draw.pick(((OUTDOORS, GOOD_WEATHER), (INDOORS, BAD_WEATHER)))
    when, why, german = draw.pick(weathers)
    clause = draw.activity(draw.subject(), "future", verbs, timed=0)
    draw.pair("time activity", when, clause.verb.base)
    kind = draw.between(0, 2)
    if kind == 0:
        # The German clause is the first element of the sentence, so that the verb follows.
        return sentence(
            f"if {when}, {clause.english()}", f"wenn {german}, {clause.german('first')}"
        )
    if kind == 1:
        return sentence(f"{clause.english()} if {when}", f"{clause.german()}, wenn {german}")
    clause = replace(clause, tense="present")
    return sentence(f"{clause.english()} because {why}", f"{clause.german()}, weil {german}")


# Requests.
def request(draw: Draw) -> Pair:
    """Could you please open my suitcase? Please open the window."""
    verb, asked = draw.pick(REQUESTS), replace(PRONOUNS["you"], possessive="my")
    done = both(draw.object(verb, asked), verb.case)
    return _request(draw, verb, done.english, f"bitte {done.german}")


def offer(draw: Draw) -> Pair:
    """Please show me the blue jacket."""
    verb = draw.pick(GIVING)
    done = both(draw.object(verb, PRONOUNS["you"]), "accusative")
    who = draw.pick((Pair("me", "mir"), Pair("us", "uns")))
    return _request(
        draw, verb, f"{who.english} {done.english}", f"{who.german} bitte {done.german}"
    )


def _request(draw: Draw, verb: Verb, english: str, german: str) -> Pair:
    if draw.chance(0.5):
        return sentence(f"please {verb.base} {english}", imperative(verb, german))
    german = join("könnten Sie", german, verb.prefix + verb.infinitive)
    return sentence(f"could you please {verb.base} {english}", german, "?")


def wish(draw: Draw) -> Pair:
    """I would like three fresh rolls, please."""
    phrase = draw.noun_phrase(NOUNS["food"], ("a", "the", "this"))
    if draw.chance(0.5):
        phrase = draw.count(phrase, draw.between(2, 12))
    english, german = draw.pick((Pair("I", "ich möchte"), Pair("we", "wir möchten")))
    return sentence(
        f"{english} would like {phrase.english}, please",
        f"{german} bitte {phrase.german('accusative')}",
    )


# With their shares.
DEEDS: dict[Callable[[Draw], Pair], int] = {
    action: 16,
    event: 4,
    giving: 9,
    putting: 4,
    activity: 9,
    appointment: 3,
    negation: 6,
    idleness: 3,
    question: 6,
    report: 7,
    feeling: 3,
    excuse: 2,
    weather: 3,
    request: 5,
    offer: 3,
    wish: 2,
}
