"""Numbers, prices, times of day and dates of the synthetic phrasebook, in English and German."""

from typing import NamedTuple

from transduce.text.phrasebook.lexicon import MONTHS


class Pair(NamedTuple):
    """An English phrase or sentence and its German translation."""

    english: str
    german: str


_ENGLISH_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
_ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_GERMAN_UNITS = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn "
    "fünfzehn sechzehn siebzehn achtzehn neunzehn"
).split()
_GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()


def number_words(number: int) -> Pair:
    """A number from 1 to 999 in words: "twenty-one" is "einundzwanzig"."""
    hundreds, rest = divmod(number, 100)
    english, german = _below_hundred(rest)
    if not hundreds:
        return Pair(english, german)
    english_hundreds = f"{_ENGLISH_UNITS[hundreds]} hundred"
    german_hundreds = "hundert" if hundreds == 1 else f"{_GERMAN_UNITS[hundreds]}hundert"
    if not rest:
        return Pair(english_hundreds, german_hundreds)
    return Pair(f"{english_hundreds} and {english}", german_hundreds + german)


def _below_hundred(number: int) -> Pair:
    if number < 20:
        return Pair(_ENGLISH_UNITS[number], _GERMAN_UNITS[number])
    tens, unit = divmod(number, 10)
    english, german = _ENGLISH_TENS[tens - 2], _GERMAN_TENS[tens - 2]
    if not unit:
        return Pair(english, german)
    german_unit = "ein" if unit == 1 else _GERMAN_UNITS[unit]
    return Pair(f"{english}-{_ENGLISH_UNITS[unit]}", f"{german_unit}und{german}")


def price(euros: int, cents: int) -> Pair:
    """A price of at least two euros: "zwei Euro fünfzig"."""
    whole, part = number_words(euros), number_words(cents)
    if not cents:
        return Pair(f"{whole.english} euros", f"{whole.german} Euro")
    return Pair(
        f"{whole.english} euros and {part.english} cents", f"{whole.german} Euro {part.german}"
    )


def clock(hour: int, minute: int) -> Pair:
    """A time of day, hour 1 to 12 and minute a multiple of 5: half past two is "halb drei"."""
    this, following = number_words(hour), number_words(hour % 12 + 1)
    if minute == 0:
        german = "ein" if hour == 1 else this.german
        return Pair(f"{this.english} o'clock", f"{german} Uhr")
    if minute <= 30:
        english = f"{_minutes(minute).english} past {this.english}"
    else:
        english = f"{_minutes(60 - minute).english} to {following.english}"
    if minute <= 20:
        german = f"{_minutes(minute).german} nach {this.german}"
    elif minute >= 40:
        german = f"{_minutes(60 - minute).german} vor {following.german}"
    else:
        from_half = {25: "fünf vor ", 30: "", 35: "fünf nach "}[minute]
        german = f"{from_half}halb {following.german}"
    return Pair(english, german)


def _minutes(minutes: int) -> Pair:
    special = {15: Pair("quarter", "Viertel"), 30: Pair("half", "halb")}
    return special.get(minutes) or number_words(minutes)


def date(day: int, month: str, ending: str) -> Pair:
    """A day of the year with the ending of the German ordinal: "third of May", "dritten Mai"."""
    english, german = _ordinal(day)
    return Pair(f"{english} of {month}", f"{german}{ending} {MONTHS[month]}")


def _ordinal(number: int) -> Pair:
    english, german = number_words(number)
    for cardinal, ordinal in {
        "one": "first",
        "two": "second",
        "three": "third",
        "five": "fifth",
        "eight": "eighth",
        "nine": "ninth",
        "twelve": "twelfth",
    }.items():
        if english == cardinal or english.endswith(f"-{cardinal}"):
            english = english.removesuffix(cardinal) + ordinal
            break
    else:
        english = (english.removesuffix("y") + "ie" if english.endswith("y") else english) + "th"
    irregular = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}
    german = irregular.get(number) or german + ("t" if number < 20 else "st")
    return Pair(english, german)
