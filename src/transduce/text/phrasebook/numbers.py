"""Numbers, prices, times of day and dates of the synthetic phrasebook, in English and German."""

from typing import NamedTuple

from transduce.text.phrasebook.lexicon import MONTHS, entries


class Pair(NamedTuple):
    """An English phrase or sentence and its German translation."""

    english: str
    german: str


def _pairs(table: str) -> list[Pair]:
    return [Pair(english, german) for english, german in entries(table).items()]


_BELOW_TWENTY = _pairs("""
    zero = null, one = eins, two = zwei, three = drei, four = vier, five = fünf, six = sechs,
    seven = sieben, eight = acht, nine = neun, ten = zehn, eleven = elf, twelve = zwölf,
    thirteen = dreizehn, fourteen = vierzehn, fifteen = fünfzehn, sixteen = sechzehn,
    seventeen = siebzehn, eighteen = achtzehn, nineteen = neunzehn
    """)
_TENS = _pairs("""
    twenty = zwanzig, thirty = dreißig, forty = vierzig, fifty = fünfzig, sixty = sechzig,
    seventy = siebzig, eighty = achtzig, ninety = neunzig
    """)


def number_words(number: int) -> Pair:
    """A number from 0 to 999 in words: "twenty-one" is "einundzwanzig"."""
    hundreds, rest = divmod(number, 100)
    below = _below_hundred(rest)
    if not hundreds:
        return below
    english, german = _BELOW_TWENTY[hundreds]
    above = Pair(f"{english} hundred", "hundert" if hundreds == 1 else f"{german}hundert")
    if not rest:
        return above
    return Pair(f"{above.english} and {below.english}", above.german + below.german)


def _below_hundred(number: int) -> Pair:
    if number < 20:
        return _BELOW_TWENTY[number]
    tens, unit = _TENS[number // 10 - 2], _BELOW_TWENTY[number % 10]
    if unit.english == "zero":
        return tens
    german = "ein" if unit.german == "eins" else unit.german
    return Pair(f"{tens.english}-{unit.english}", f"{german}und{tens.german}")


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
