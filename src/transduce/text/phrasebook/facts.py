"""Templates of the synthetic phrasebook about where things are, how they are, how many, and when.

Each template chooses words and builds both sides of a sentence.
"""

from collections.abc import Callable
from dataclasses import replace

from transduce.text.phrasebook.draw import Draw
from transduce.text.phrasebook.grammar import (
    BE,
    NOTHING,
    SEIN,
    Clause,
    NounPhrase,
    both,
    join,
    sentence,
    subject_of,
)
from transduce.text.phrasebook.lexicon import (
    ACTIONS,
    ADJECTIVES,
    ARRIVE,
    CITIES,
    CLOSE,
    COLOURS,
    COST,
    DEPART,
    FITTING,
    LIE,
    LYING,
    NOUN,
    NOUNS,
    OPEN,
    PAY,
    POSSESSIVES,
    STAND,
    STANDING,
    WEEKDAYS,
    nouns,
)
from transduce.text.phrasebook.numbers import Pair, number_words

HAVE = next(verb for verb in ACTIONS if verb.base == "have")
OWNERS = tuple(POSSESSIVES)
MOVABLE = nouns("thing paper clothes container animal")
GOODS = nouns("thing clothes furniture container food")
DESCRIBABLE = nouns("person child vehicle transport place") + MOVABLE + GOODS
OPENING = nouns("museum restaurant pharmacy castle theatre cinema library bakery")
# What has so many of what.
ASSETS = (
    ("hotel", "room"),
    ("book", "page"),
    ("theatre", "seat"),
    ("cinema", "seat"),
    ("school", "pupil"),
    ("museum", "picture"),
)
BY_PLACE = (
    Pair("next to", "neben"),
    Pair("behind", "hinter"),
    Pair("in front of", "vor"),
    Pair("opposite", "gegenüber"),
)
DAYS = (("today is", "heute ist"), ("tomorrow is", "morgen ist"), ("yesterday was", "gestern war"))


def description(draw: Draw) -> Pair:
    """This bag is not heavy."""
    phrase = draw.noun_phrase(DESCRIBABLE, ("the", "this"), adjective=0)
    adjective = draw.pick(FITTING[phrase.noun.kind])
    draw.pair("adjective noun", adjective, phrase.noun.english)
    degrees = [NOTHING, Pair("not", "nicht")]
    if adjective not in COLOURS:
        degrees.append(Pair("very", "sehr"))
    return _being(phrase, draw.pick(degrees), Pair(adjective, ADJECTIVES[adjective]))


def recipient(draw: Draw) -> Pair:
    """The blue scarf is for my aunt."""
    gift = draw.noun_phrase(nouns("thing clothes container"), ("the", "this"), adjective=0.8)
    return _being(gift, both(draw.somebody(), "accusative", Pair("for", "für")))


def building(draw: Draw) -> Pair:
    """The new hotel is next to the old church."""
    place = draw.noun_phrase(NOUNS["place"], ("the", "this"), plural=0)
    others = [noun for noun in NOUNS["place"] if noun != place.noun]
    other = draw.noun_phrase(others, ("the",), plural=0)
    return _being(place, both(other, "dative", draw.pick(BY_PLACE)))


def _being(phrase: NounPhrase, *said: Pair) -> Pair:
    return sentence(
        join(phrase.english, BE[phrase.person], *(pair.english for pair in said)),
        join(phrase.german("nominative"), SEIN[phrase.person], *(pair.german for pair in said)),
    )


def position(draw: Draw) -> Pair:
    """The glass is on the small table."""
    thing = draw.noun_phrase((*LYING, *STANDING), ("the", "this", *OWNERS))
    where = draw.where(thing.noun, "dative", inside="in")
    verb = LIE if thing.noun in LYING else STAND
    clause = Clause(subject_of(thing), verb, (where,), "present")
    return sentence(clause.english(), clause.german())


def whereabouts(draw: Draw) -> Pair:
    """Where is my red bag?"""
    thing = draw.noun_phrase(MOVABLE, OWNERS)
    german = f"wo {SEIN[thing.person]} {thing.german('nominative')}"
    return sentence(f"where {BE[thing.person]} {thing.english}", german, "?")


def way(draw: Draw) -> Pair:
    """Excuse me, where is the nearest pharmacy? How do I get to the old castle?"""
    place = draw.noun_phrase(NOUNS["place"], ("the",), plural=0)
    if not place.adjective:
        place = replace(place, adjective="nearest")
        draw.pair("adjective noun", "nearest", place.noun.english)
    elif draw.chance(0.3):
        german = replace(place, determiner="a").german("accusative")
        english = replace(place, determiner="a").english
        return sentence(f"is there {english} here", f"gibt es hier {german}", "?")
    if draw.chance(0.5):
        german = f"Entschuldigung, wo ist {place.german('nominative')}"
        return sentence(f"excuse me, where is {place.english}", german, "?")
    to = both(place, "dative", Pair("to", "zu"))
    return sentence(f"how do I get {to.english}", f"wie komme ich {to.german}", "?")


# Numbers and prices.
def room_number(draw: Draw) -> Pair:
    """My room number is two hundred and twenty-one."""
    owner, number = draw.pick(OWNERS), number_words(draw.between(1, 999))
    return sentence(
        f"{owner} room number is {number.english}",
        f"{POSSESSIVES[owner]}e Zimmernummer ist {number.german}",
    )


def age(draw: Draw) -> Pair:
    """My uncle is sixty-one years old."""
    relatives = nouns("father mother brother sister son daughter uncle aunt friend")
    phrase, years = draw.noun_phrase(relatives, OWNERS, plural=0), draw.between(20, 99)
    draw.pair("number noun", years, phrase.noun.english)
    number = number_words(years)
    return _being(phrase, Pair(f"{number.english} years old", f"{number.german} Jahre alt"))


def asset(draw: Draw) -> Pair:
    """The old theatre has three hundred and fifty seats."""
    name, part = draw.pick(ASSETS)
    owner = draw.noun_phrase((NOUN[name],), ("the", "this"), plural=0)
    number = draw.between(12, 999)
    if number % 100 == 1:
        number += 1  # German is of two minds about "hunderteins Zimmer".
    parts = draw.count(NounPhrase(NOUN[part], ""), number)
    clause = Clause(subject_of(owner), HAVE, (both(parts, "accusative"),), "present")
    return sentence(clause.english(), clause.german())


def cost(draw: Draw) -> Pair:
    """This watch costs ninety-nine euros and fifty cents. How much does this watch cost?"""
    goods = draw.noun_phrase(GOODS, ("the", "this"))
    clause = Clause(subject_of(goods), COST, (), "present")
    if draw.chance(0.25):
        return sentence(
            f"how much {clause.english(question=True)}", f"wie viel {clause.german('first')}", "?"
        )
    price = draw.price(19 if goods.noun.kind == "food" else 99)
    clause = replace(clause, rest=(price,))
    if draw.chance(0.3):
        rest = (price, both(goods, "accusative", Pair("for", "für")))
        clause = Clause(draw.subject(), PAY, rest, "past")
    return sentence(clause.english(), clause.german())


# Times of day and dates.
def now(draw: Draw) -> Pair:
    """It is already half past two."""
    already, time = draw.pick((NOTHING, Pair("already", "schon"))), draw.clock()
    return sentence(
        join("it is", already.english, time.english), join("es ist", already.german, time.german)
    )


def departure(draw: Draw) -> Pair:
    """The bus to Cologne departs at ten to eight."""
    clause = departing(draw)
    return sentence(clause.english(), clause.german())


def departing(draw: Draw) -> Clause:
    """A train or bus departs or arrives."""
    city = draw.pick(tuple(CITIES))
    phrase = NounPhrase(draw.pick(nouns("train bus")), "the", draw.pick(("", "", "next", "last")))
    if phrase.adjective:
        draw.pair("adjective noun", phrase.adjective, phrase.noun.english)
    if draw.chance(0.4):
        subject = subject_of(phrase, Pair(f"from {city}", f"aus {CITIES[city]}"))
        return Clause(subject, ARRIVE, (), "habit", draw.at_clock())
    rest = ()
    if phrase.noun.english == "train" and draw.chance(0.4):
        platform = number_words(draw.between(1, 20))
        rest = (Pair(f"from platform {platform.english}", f"von Gleis {platform.german}"),)
    subject = subject_of(phrase, Pair(f"to {city}", f"nach {CITIES[city]}"))
    return Clause(subject, DEPART, rest, "habit", draw.at_clock())


def opening(draw: Draw) -> Pair:
    """On Monday the old library closes at half past seven. When does the museum open?"""
    place = draw.noun_phrase(OPENING, ("the",), plural=0)
    clause = Clause(subject_of(place), draw.pick((OPEN, CLOSE)), (), "habit")
    if draw.chance(0.2):
        return sentence(
            f"when {clause.english(question=True)}", f"wann {clause.german('first')}", "?"
        )
    clause = replace(clause, rest=(draw.at_clock(),))
    if draw.chance(0.5):
        return sentence(clause.english(), clause.german())
    day = draw.pick(tuple(WEEKDAYS))
    clause = replace(clause, time=Pair(f"on {day}", f"am {WEEKDAYS[day]}"))
    return sentence(clause.english(fronted=True), clause.german(fronted=True))


def today(draw: Draw) -> Pair:
    """Today is the third of May."""
    (english, german), date = draw.pick(DAYS), draw.date("e")
    return sentence(f"{english} the {date.english}", f"{german} der {date.german}")


def occasion(draw: Draw) -> Pair:
    """Our wedding is on Saturday, the third of May."""
    occasion = draw.noun_phrase(NOUNS["event"], OWNERS, adjective=0, plural=0)
    date, day = draw.date("en"), draw.pick(tuple(WEEKDAYS))
    if draw.chance(0.5):
        return _being(occasion, Pair(f"on the {date.english}", f"am {date.german}"))
    when = Pair(f"on {day}, the {date.english}", f"am {WEEKDAYS[day]}, dem {date.german}")
    return _being(occasion, when)


# With their shares.
FACTS: dict[Callable[[Draw], Pair], int] = {
    description: 4,
    recipient: 2,
    building: 3,
    position: 4,
    whereabouts: 1,
    way: 2,
    room_number: 3,
    age: 3,
    asset: 3,
    cost: 4,
    now: 1,
    departure: 5,
    opening: 3,
    today: 2,
    occasion: 3,
}
