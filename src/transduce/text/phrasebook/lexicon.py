"""The words of the synthetic phrasebook: nouns, adjectives, verbs, times and names.

The tables are written as a dictionary for learners would print them and are read into
dataclasses once, at import. Each English entry has exactly one German counterpart.
"""

from dataclasses import dataclass
from typing import Literal

Case = Literal["nominative", "accusative", "dative"]
Gender = Literal["m", "f", "n"]


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun with its gender and plural.

    `german_oblique` is the singular outside the nominative, which weak nouns change.
    """

    kind: str
    english: str
    english_plural: str
    german: str
    gender: Gender
    german_plural: str
    german_oblique: str


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb with what always goes with it.

    The English forms contain their particle or complement ("looked for", "go home").
    `prefix` is the separable prefix, `complement` what stands before it ("nach Hause").
    `progressive` is empty for verbs that English keeps in the simple form ("need").
    `objects` and `determiners` say what may be its object, in the case `case`.
    """

    base: str
    third: str
    progressive: str
    past: str
    prefix: str
    infinitive: str
    german_third: str
    auxiliary: str
    participle: str
    complement: str = ""
    case: Case = "accusative"
    determiners: tuple[str, ...] = ()
    objects: tuple[Noun, ...] = ()


def entries(table: str) -> dict[str, str]:
    """Read "red = rot, blue = blau" as a dictionary."""
    pairs = (entry.split(" = ") for entry in table.split(","))
    return {english.strip(): german.strip() for english, german in pairs}


_GENDERS: dict[str, Gender] = {"der": "m", "die": "f", "das": "n"}

# A third German entry is the singular of a weak noun outside the nominative.
_NOUNS = {
    "person": """
        man, men = der Mann, die Männer; woman, women = die Frau, die Frauen
        teacher, teachers = der Lehrer, die Lehrer; doctor, doctors = der Arzt, die Ärzte
        waitress, waitresses = die Kellnerin, die Kellnerinnen
        neighbour, neighbours = der Nachbar, die Nachbarn, den Nachbarn
        student, students = der Student, die Studenten, den Studenten
        tourist, tourists = der Tourist, die Touristen, den Touristen
        guest, guests = der Gast, die Gäste
        """,
    "child": """
        child, children = das Kind, die Kinder; girl, girls = das Mädchen, die Mädchen
        """,
    "parent": """
        father, fathers = der Vater, die Väter; mother, mothers = die Mutter, die Mütter
        """,
    "family": """
        brother, brothers = der Bruder, die Brüder
        sister, sisters = die Schwester, die Schwestern; son, sons = der Sohn, die Söhne
        daughter, daughters = die Tochter, die Töchter
        grandfather, grandfathers = der Großvater, die Großväter
        grandmother, grandmothers = die Großmutter, die Großmütter
        uncle, uncles = der Onkel, die Onkel; aunt, aunts = die Tante, die Tanten
        friend, friends = der Freund, die Freunde
        """,
    "animal": """
        dog, dogs = der Hund, die Hunde; cat, cats = die Katze, die Katzen
        horse, horses = das Pferd, die Pferde; bird, birds = der Vogel, die Vögel
        cow, cows = die Kuh, die Kühe
        """,
    "thing": """
        book, books = das Buch, die Bücher; key, keys = der Schlüssel, die Schlüssel
        phone, phones = das Handy, die Handys; camera, cameras = die Kamera, die Kameras
        umbrella, umbrellas = der Regenschirm, die Regenschirme
        glass, glasses = das Glas, die Gläser; cup, cups = die Tasse, die Tassen
        knife, knives = das Messer, die Messer; plate, plates = der Teller, die Teller
        picture, pictures = das Bild, die Bilder; present, presents = das Geschenk, die Geschenke
        bottle, bottles = die Flasche, die Flaschen; pen, pens = der Stift, die Stifte
        watch, watches = die Uhr, die Uhren; lamp, lamps = die Lampe, die Lampen
        """,
    "paper": """
        ticket, tickets = die Fahrkarte, die Fahrkarten; passport, passports = der Pass, die Pässe
        map, maps = der Stadtplan, die Stadtpläne; letter, letters = der Brief, die Briefe
        newspaper, newspapers = die Zeitung, die Zeitungen
        """,
    "clothes": """
        shirt, shirts = das Hemd, die Hemden; coat, coats = der Mantel, die Mäntel
        jacket, jackets = die Jacke, die Jacken; dress, dresses = das Kleid, die Kleider
        hat, hats = der Hut, die Hüte; skirt, skirts = der Rock, die Röcke
        jumper, jumpers = der Pullover, die Pullover; scarf, scarves = der Schal, die Schals
        blouse, blouses = die Bluse, die Blusen
        """,
    "food": """
        apple, apples = der Apfel, die Äpfel; cake, cakes = der Kuchen, die Kuchen
        egg, eggs = das Ei, die Eier; roll, rolls = das Brötchen, die Brötchen
        soup, soups = die Suppe, die Suppen; salad, salads = der Salat, die Salate
        sausage, sausages = die Wurst, die Würste; tomato, tomatoes = die Tomate, die Tomaten
        potato, potatoes = die Kartoffel, die Kartoffeln; pear, pears = die Birne, die Birnen
        """,
    "furniture": """
        table, tables = der Tisch, die Tische; chair, chairs = der Stuhl, die Stühle
        sofa, sofas = das Sofa, die Sofas; bed, beds = das Bett, die Betten
        shelf, shelves = das Regal, die Regale
        """,
    "container": """
        bag, bags = die Tasche, die Taschen; suitcase, suitcases = der Koffer, die Koffer
        box, boxes = die Kiste, die Kisten; basket, baskets = der Korb, die Körbe
        rucksack, rucksacks = der Rucksack, die Rucksäcke; parcel, parcels = das Paket, die Pakete
        """,
    "vehicle": """
        car, cars = das Auto, die Autos; bicycle, bicycles = das Fahrrad, die Fahrräder
        motorbike, motorbikes = das Motorrad, die Motorräder; boat, boats = das Boot, die Boote
        """,
    "transport": """
        train, trains = der Zug, die Züge; bus, buses = der Bus, die Busse
        ship, ships = das Schiff, die Schiffe
        """,
    "place": """
        museum, museums = das Museum, die Museen; hotel, hotels = das Hotel, die Hotels
        station, stations = der Bahnhof, die Bahnhöfe; church, churches = die Kirche, die Kirchen
        restaurant, restaurants = das Restaurant, die Restaurants
        pharmacy, pharmacies = die Apotheke, die Apotheken; cinema, cinemas = das Kino, die Kinos
        castle, castles = das Schloss, die Schlösser; market, markets = der Markt, die Märkte
        park, parks = der Park, die Parks; theatre, theatres = das Theater, die Theater
        library, libraries = die Bibliothek, die Bibliotheken
        school, schools = die Schule, die Schulen; bakery, bakeries = die Bäckerei, die Bäckereien
        hospital, hospitals = das Krankenhaus, die Krankenhäuser
        """,
    "house": """
        window, windows = das Fenster, die Fenster; door, doors = die Tür, die Türen
        """,
    "event": """
        birthday, birthdays = der Geburtstag, die Geburtstage
        concert, concerts = das Konzert, die Konzerte; exam, exams = die Prüfung, die Prüfungen
        wedding, weddings = die Hochzeit, die Hochzeiten; party, parties = die Party, die Partys
        course, courses = der Kurs, die Kurse
        """,
    "part": """
        room, rooms = das Zimmer, die Zimmer; page, pages = die Seite, die Seiten
        seat, seats = der Platz, die Plätze; pupil, pupils = der Schüler, die Schüler
        """,
}


def _noun(kind: str, entry: str) -> Noun:
    english, german = (side.strip().split(", ") for side in entry.split(" = "))
    article, singular = german[0].split(" ")
    forms = [form.split(" ")[1] for form in german]
    oblique = forms[2] if len(forms) > 2 else singular
    return Noun(kind, english[0], english[1], singular, _GENDERS[article], forms[1], oblique)


NOUNS = {
    kind: tuple(_noun(kind, entry) for entry in table.strip().replace("\n", ";").split(";"))
    for kind, table in _NOUNS.items()
}
NOUN = {noun.english: noun for nouns in NOUNS.values() for noun in nouns}


def nouns(names: str) -> tuple[Noun, ...]:
    """The nouns of a list of kinds and English nouns, as in "vehicle clothes camera"."""
    return tuple(
        noun for name in names.split() for noun in (NOUNS[name] if name in NOUNS else (NOUN[name],))
    )


ADJECTIVES = entries("""
    young = jung, old = alt, tall = groß, big = groß, small = klein, friendly = freundlich,
    nice = nett, polite = höflich, famous = berühmt, new = neu, heavy = schwer, cheap = billig,
    expensive = teuer, red = rot, blue = blau, green = grün, black = schwarz, white = weiß,
    yellow = gelb, brown = braun, beautiful = schön, warm = warm, elegant = elegant,
    fresh = frisch, good = gut, delicious = lecker, modern = modern, fast = schnell,
    important = wichtig, comfortable = bequem, tired = müde,
    happy = glücklich, sad = traurig, nearest = nächst, next = nächst, last = letzt
    """)
COLOURS = ("red", "blue", "green", "black", "white", "yellow", "brown")
# What may stand before, or be said of, a noun of each kind; of the others, nothing.
FITTING = {
    kind: tuple(adjectives.split())
    for kind, adjectives in {
        "person": "young old tall small friendly nice polite famous",
        "child": "small tall friendly nice polite",
        "animal": "young old big small black white brown beautiful",
        "thing": "new old small beautiful cheap expensive red blue black white",
        "paper": "new old important",
        "clothes": "new old warm elegant cheap expensive red blue green black white yellow",
        "food": "fresh good delicious big small cheap warm",
        "furniture": "new old big small heavy brown white comfortable",
        "container": "new old big small heavy black brown red",
        "vehicle": "new old fast cheap expensive red blue green white",
        "transport": "old new fast modern",
        "place": "old new big small famous beautiful modern",
        "house": "old new big small white",
    }.items()
}


def _verb(line: str) -> Verb:
    row = [" ".join(column.split()) for column in line.split(" : ")]
    english, german = row[0].split(" = ")
    forms, _, rest = english.strip().partition(" | ")
    base, third, progressive, past = (
        "" if form == "-" else f"{form} {rest}".strip() for form in forms.split()
    )
    complement, _, principal = german.rpartition(" | ")
    infinitive, german_third, auxiliary, participle = principal.split()
    prefix, _, infinitive = infinitive.rpartition("+")
    words = base, third, progressive, past, prefix, infinitive, german_third, auxiliary, participle
    case: Case = "dative" if base in ("help", "thank") else "accusative"
    if len(row) == 1:
        return Verb(*words, complement=complement)
    return Verb(*words, complement, case, tuple(row[1].split()), nouns(row[2]))


def _verbs(table: str) -> tuple[Verb, ...]:
    return tuple(_verb(line) for line in table.strip().splitlines())


# Verbs with an object: the forms, then its determiners ("own" is the subject's own), then nouns.
ACTIONS = _verbs("""
    buy buys buying bought = kaufen kauft hat gekauft \
        : the a this : thing clothes food vehicle furniture container
    sell sells selling sold = verkaufen verkauft hat verkauft \
        : the a this own : thing clothes vehicle furniture
    look looks looking looked | for = suchen sucht hat gesucht \
        : the a own : thing paper clothes container animal
    need needs - needed = brauchen braucht hat gebraucht \
        : the a this : thing paper clothes furniture container vehicle
    have has - had = haben hat hat gehabt : a : thing clothes furniture container vehicle animal
    order orders ordering ordered = bestellen bestellt hat bestellt \
        : the a this : food clothes furniture lamp book
    eat eats eating ate = essen isst hat gegessen : the a this own : food
    visit visits visiting visited = besuchen besucht hat besucht \
        : the this : person child parent family museum church castle market park library school
    invite invites inviting invited = ein+laden lädt hat eingeladen \
        : the own : person child parent family
    call calls calling called = an+rufen ruft hat angerufen : the own : person child parent family
    pick picks picking picked | up = ab+holen holt hat abgeholt \
        : the own : person child parent family paper parcel
    help helps helping helped = helfen hilft hat geholfen \
        : the own this : person child parent family
    thank thanks thanking thanked = danken dankt hat gedankt \
        : the own this : person child parent family
    read reads reading read = lesen liest hat gelesen : the a this own : book letter newspaper
    open opens opening opened = auf+machen macht hat aufgemacht \
        : the this own : house box suitcase bag rucksack bottle letter parcel present
    close closes closing closed = zu+machen macht hat zugemacht \
        : the this own : house box suitcase bag rucksack bottle
    put puts putting put | on = an+ziehen zieht hat angezogen \
        : the a this own : shirt coat jacket dress skirt jumper blouse
    try tries trying tried | on = an+probieren probiert hat anprobiert : the a this : clothes
    bring brings bringing brought | along = mit+bringen bringt hat mitgebracht \
        : the a own : thing food newspaper map dog
    take takes taking took | along = mit+nehmen nimmt hat mitgenommen \
        : the a own : thing paper clothes container
    repair repairs repairing repaired = reparieren repariert hat repariert \
        : the this own : vehicle camera watch phone lamp chair
    photograph photographs photographing photographed \
        = fotografieren fotografiert hat fotografiert : the this : place animal
    take takes taking took = nehmen nimmt hat genommen : the this : transport
    """)
# Things that happen to people, told in the past only.
EVENTS = _verbs("""
    find finds finding found = finden findet hat gefunden \
        : the a own : thing paper clothes container
    lose loses losing lost = verlieren verliert hat verloren \
        : the own : thing paper clothes container
    forget forgets forgetting forgot = vergessen vergisst hat vergessen \
        : the own : thing paper clothes container
    see sees seeing saw = sehen sieht hat gesehen : the a this : person child animal place vehicle
    miss misses missing missed = verpassen verpasst hat verpasst : the : transport
    """)
# Verbs with a receiver in the dative and an object.
GIVING = _verbs("""
    give gives giving gave = geben gibt hat gegeben \
        : the a this own : thing paper food clothes container
    show shows showing showed = zeigen zeigt hat gezeigt \
        : the a this own : thing paper clothes furniture animal vehicle
    send sends sending sent = schicken schickt hat geschickt \
        : the a this own : picture present letter parcel book ticket watch
    lend lends lending lent = leihen leiht hat geliehen \
        : the a this own : thing clothes vehicle suitcase bag rucksack
    """)
CITIES = entries("""
    Berlin = Berlin, Hamburg = Hamburg, Munich = München, Cologne = Köln, Vienna = Wien,
    Zurich = Zürich, Dresden = Dresden, Salzburg = Salzburg
    """)
_TRAVEL = "travel travels travelling travelled | to {} = nach {} | fahren fährt ist gefahren"
ACTIVITIES = _verbs("""
    go goes going went | to the cinema = ins Kino | gehen geht ist gegangen
    go goes going went | to the theatre = ins Theater | gehen geht ist gegangen
    go goes going went | to the market = auf den Markt | gehen geht ist gegangen
    go goes going went | for a walk = spazieren | gehen geht ist gegangen
    go goes going went | home = nach Hause | gehen geht ist gegangen
    go goes going went | out = aus+gehen geht ist ausgegangen
    go goes going went | shopping = ein+kaufen kauft hat eingekauft
    stay stays staying stayed | at home = zu Hause | bleiben bleibt ist geblieben
    work works working worked | in the garden = im Garten | arbeiten arbeitet hat gearbeitet
    work works working worked | at the office = im Büro | arbeiten arbeitet hat gearbeitet
    swim swims swimming swam | in the lake = im See | schwimmen schwimmt ist geschwommen
    sing sings singing sang | in the choir = im Chor | singen singt hat gesungen
    sleep sleeps sleeping slept | in the tent = im Zelt | schlafen schläft hat geschlafen
    eat eats eating ate | at the restaurant = im Restaurant | essen isst hat gegessen
    play plays playing played | football = Fußball | spielen spielt hat gespielt
    play plays playing played | the piano = Klavier | spielen spielt hat gespielt
    learn learns learning learned | German = Deutsch | lernen lernt hat gelernt
    listen listens listening listened | to music = Musik | hören hört hat gehört
    drink drinks drinking drank | coffee = Kaffee | trinken trinkt hat getrunken
    have has having had | breakfast = frühstücken frühstückt hat gefrühstückt
    cook cooks cooking cooked = kochen kocht hat gekocht
    dance dances dancing danced = tanzen tanzt hat getanzt
    get gets getting got | up = auf+stehen steht ist aufgestanden
    watch watches watching watched | television = fern+sehen sieht hat ferngesehen
    come comes coming came | back = zurück+kommen kommt ist zurückgekommen
    leave leaves leaving left = ab+reisen reist ist abgereist
    take takes taking took | part in the course = am Kurs | teil+nehmen nimmt hat teilgenommen
    """) + tuple(_verb(_TRAVEL.format(*city)) for city in CITIES.items())
DEPART = _verb("depart departs departing departed = ab+fahren fährt ist abgefahren")
ARRIVE = _verb("arrive arrives arriving arrived = an+kommen kommt ist angekommen")
PAY = _verb("pay pays paying paid = bezahlen bezahlt hat bezahlt")
COST = _verb("cost costs - cost = kosten kostet hat gekostet")
OPEN = _verb("open opens opening opened = auf+machen macht hat aufgemacht")
CLOSE = _verb("close closes closing closed = zu+machen macht hat zugemacht")

# English "put" and "be" differ in German between what lies and what stands.
LYING = nouns("book key phone camera umbrella knife picture pen watch paper clothes")
LAY = _verb("put puts putting put = legen legt hat gelegt")
LIE = _verb("are is - were = liegen liegt hat gelegen")
STANDING = nouns("glass cup plate bottle lamp")
PLACE = _verb("put puts putting put = stellen stellt hat gestellt")
STAND = _verb("are is - were = stehen steht hat gestanden")

# English modal: (I and he, plural).
MODALS = {
    "can": ("kann", "können"),
    "must": ("muss", "müssen"),
    "may": ("darf", "dürfen"),
    "should": ("sollte", "sollten"),
    "want to": ("will", "wollen"),
    "would like to": ("möchte", "möchten"),
}
POSSESSIVES = entries("my = mein, your = Ihr, his = sein, her = ihr, our = unser, their = ihr")
WEEKDAYS = entries("""
    Monday = Montag, Tuesday = Dienstag, Wednesday = Mittwoch, Thursday = Donnerstag,
    Friday = Freitag, Saturday = Samstag, Sunday = Sonntag
    """)
MONTHS = entries("""
    January = Januar, February = Februar, March = März, April = April, May = Mai, June = Juni,
    July = Juli, August = August, September = September, October = Oktober,
    November = November, December = Dezember
    """)
_TIMES = {
    "present": """
        today = heute, tomorrow = morgen, this evening = heute Abend,
        this afternoon = heute Nachmittag, at the weekend = am Wochenende,
        next week = nächste Woche
        """,
    "past": """
        yesterday = gestern, yesterday evening = gestern Abend, last week = letzte Woche,
        two days ago = vor zwei Tagen
        """,
    "habit": """
        every day = jeden Tag, every evening = jeden Abend, in summer = im Sommer,
        in winter = im Winter
        """,
}
_ON_WEEKDAYS = {"present": ("on", "am"), "past": ("last", "letzten"), "habit": ("every", "jeden")}
# By tense, since each goes with one: the present also tells what is planned.
TIMES = {
    tense: entries(table)
    | {
        f"{_ON_WEEKDAYS[tense][0]} {english}": f"{_ON_WEEKDAYS[tense][1]} {german}"
        for english, german in WEEKDAYS.items()
    }
    for tense, table in _TIMES.items()
}
