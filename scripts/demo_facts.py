"""The facts of the demo: things that anybody can check, written `subject=answer`, separated by commas.

A relation names its facts, how to ask for the answer, and (for the second task) how to ask the other way round.
No phrasing starts with its subject: there a word is written, and cut into tokens, in another way than elsewhere.
Left out on purpose: what people argue about or what changes (disputed capitals, populations, records).
"""
from typing import NamedTuple


class Relation(NamedTuple):
    facts: dict        # subject -> answer
    questions: tuple   # phrasings with {} for the subject
    reverse: tuple = ()  # phrasings with {} for the answer; only where every answer has one subject


def pairs(text):
    """{subject: answer} of a comma-separated list."""
    found = [tuple(part.strip() for part in item.split("=")) for item in text.split(",")]
    table = dict(found)
    assert len(table) == len(found), "a subject stands twice"
    return table


def numbered(text, first=1):
    """{name: its position} of a comma-separated list."""
    return {name.strip(): str(number) for number, name in enumerate(text.split(","), first)}


CAPITALS = pairs("""
France=Paris, Germany=Berlin, Italy=Rome, Spain=Madrid, Portugal=Lisbon, Austria=Vienna, Poland=Warsaw,
Hungary=Budapest, Greece=Athens, Sweden=Stockholm, Norway=Oslo, Denmark=Copenhagen, Finland=Helsinki,
Iceland=Reykjavik, Ireland=Dublin, Belgium=Brussels, Croatia=Zagreb, Serbia=Belgrade, Romania=Bucharest,
Bulgaria=Sofia, Albania=Tirana, Estonia=Tallinn, Latvia=Riga, Lithuania=Vilnius, Slovakia=Bratislava,
Slovenia=Ljubljana, Ukraine=Kyiv, Russia=Moscow, Turkey=Ankara, Cyprus=Nicosia, Malta=Valletta, Egypt=Cairo,
Morocco=Rabat, Tunisia=Tunis, Kenya=Nairobi, Ghana=Accra, Nigeria=Abuja, Senegal=Dakar, Ethiopia=Addis Ababa,
Uganda=Kampala, Zambia=Lusaka, Zimbabwe=Harare, Angola=Luanda, Namibia=Windhoek, Rwanda=Kigali, Japan=Tokyo,
China=Beijing, India=New Delhi, Nepal=Kathmandu, Bhutan=Thimphu, Pakistan=Islamabad, Bangladesh=Dhaka,
Thailand=Bangkok, Vietnam=Hanoi, Laos=Vientiane, Mongolia=Ulaanbaatar, South Korea=Seoul, Iran=Tehran, Iraq=Baghdad,
Jordan=Amman, Lebanon=Beirut, Oman=Muscat, Qatar=Doha, Canada=Ottawa, Mexico=Mexico City, Cuba=Havana,
Jamaica=Kingston, Costa Rica=San Jose, Peru=Lima, Chile=Santiago, Argentina=Buenos Aires, Uruguay=Montevideo,
Paraguay=Asuncion, Brazil=Brasilia, Ecuador=Quito, Colombia=Bogota, Venezuela=Caracas, Australia=Canberra,
New Zealand=Wellington, Fiji=Suva
""")

SYMBOLS = pairs("""
hydrogen=H, helium=He, lithium=Li, beryllium=Be, boron=B, carbon=C, nitrogen=N, oxygen=O, fluorine=F, neon=Ne,
sodium=Na, magnesium=Mg, aluminium=Al, silicon=Si, phosphorus=P, sulfur=S, chlorine=Cl, argon=Ar, potassium=K,
calcium=Ca, titanium=Ti, chromium=Cr, manganese=Mn, iron=Fe, cobalt=Co, nickel=Ni, copper=Cu, zinc=Zn, arsenic=As,
bromine=Br, krypton=Kr, silver=Ag, tin=Sn, iodine=I, xenon=Xe, barium=Ba, tungsten=W, platinum=Pt, gold=Au,
mercury=Hg, lead=Pb, bismuth=Bi, radon=Rn, radium=Ra, uranium=U, plutonium=Pu
""")

ATOMIC_NUMBERS = numbered("""hydrogen, helium, lithium, beryllium, boron, carbon, nitrogen, oxygen, fluorine, neon,
sodium, magnesium, aluminium, silicon, phosphorus, sulfur, chlorine, argon, potassium, calcium, scandium, titanium,
vanadium, chromium, manganese, iron, cobalt, nickel, copper, zinc""")

PLANETS = numbered("Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus, Neptune")

MONTH_NUMBERS = numbered("""January, February, March, April, May, June, July, August, September, October, November,
December""")

MONTH_DAYS = pairs("""January=31, March=31, April=30, May=31, June=30, July=31, August=31, September=30, October=31,
November=30, December=31""")

SQUARES = {str(n): str(n * n) for n in range(2, 21)}

ROMAN = pairs("""1=I, 2=II, 3=III, 4=IV, 5=V, 6=VI, 7=VII, 8=VIII, 9=IX, 10=X, 11=XI, 12=XII, 13=XIII, 14=XIV, 15=XV,
16=XVI, 17=XVII, 18=XVIII, 19=XIX, 20=XX, 50=L, 100=C, 500=D, 1000=M""")

YOUNG = pairs("""dog=puppy, cat=kitten, cow=calf, sheep=lamb, goat=kid, horse=foal, pig=piglet, deer=fawn, lion=cub,
bear=cub, duck=duckling, goose=gosling, swan=cygnet, hen=chick, frog=tadpole, kangaroo=joey, seal=pup, owl=owlet,
eel=elver, hare=leveret, whale=calf, butterfly=caterpillar""")

PLURALS = pairs("""child=children, man=men, woman=women, foot=feet, tooth=teeth, goose=geese, mouse=mice, louse=lice,
ox=oxen, person=people, leaf=leaves, knife=knives, wolf=wolves, half=halves, loaf=loaves, thief=thieves, city=cities,
box=boxes, cactus=cacti, crisis=crises, analysis=analyses, criterion=criteria, bacterium=bacteria, potato=potatoes""")

OPPOSITES = pairs("""hot=cold, big=small, up=down, left=right, day=night, black=white, young=old, fast=slow, hard=soft,
light=dark, high=low, open=closed, full=empty, rich=poor, early=late, happy=sad, wet=dry, strong=weak, long=short,
true=false, first=last, heavy=light, near=far, loud=quiet, sweet=bitter, thick=thin, win=lose, buy=sell, love=hate,
clean=dirty""")

PAST_TENSES = pairs("""go=went, see=saw, eat=ate, drink=drank, write=wrote, take=took, give=gave, come=came, run=ran,
sing=sang, swim=swam, fly=flew, know=knew, grow=grew, think=thought, bring=brought, buy=bought, teach=taught,
catch=caught, find=found, stand=stood, speak=spoke, break=broke, drive=drove, sleep=slept, feel=felt, make=made,
tell=told, wear=wore, begin=began""")

SIDES = pairs("triangle=3, square=4, pentagon=5, hexagon=6, heptagon=7, octagon=8, nonagon=9, decagon=10")

RELATIONS = {
    "capital": Relation(CAPITALS, (
        "What is the capital of {}?", "Name the capital city of {}.", "Which city is the capital of {}?",
        "Which capital has {}?", "Tell me the capital of {}."), (
        "The city of {} is the capital of which country?", "Name the country whose capital is {}.",
        "Which country has {} as its capital?", "Of which country is {} the capital?")),
    "symbol": Relation(SYMBOLS, (
        "What is the chemical symbol of {}?", "Which symbol stands for the element {}?", "Give the symbol for {}.",
        "How is {} written in the periodic table?", "Chemists write {} as what?"), (
        "Which element has the symbol {}?", "The symbol {} stands for which element?",
        "Name the element that chemists write as {}.", "What does the chemical symbol {} stand for?")),
    "atomic number": Relation(ATOMIC_NUMBERS, (
        "What is the atomic number of {}?", "How many protons has an atom of {}?", "Give the atomic number of {}.",
        "Which number has {} in the periodic table?", "The element {} has which atomic number?"), (
        "Which element has the atomic number {}?", "Name the element with {} protons.",
        "Element number {} is called what?", "Which element is number {} in the periodic table?")),
    "planet": Relation(PLANETS, (
        "Counted from the Sun, which number is the planet {}?", "What is the position of {} from the Sun?",
        "The planet {} is number what?", "Which place from the Sun has {}?", "Give the number of the planet {}."), (
        "Which planet is number {} from the Sun?", "Name planet number {}.",
        "Counted from the Sun, what is planet {} called?", "Which planet has place {}?")),
    "month number": Relation(MONTH_NUMBERS, (
        "Which number has the month {}?", "The month {} is number what in the year?", "What is the position of {} in the year?",
        "Give the number of the month {}.", "In dates, {} is written as which number?"), (
        "Which month is number {}?", "Name month number {}.", "Month {} of the year is called what?",
        "What is the name of month {}?")),
    "month days": Relation(MONTH_DAYS, (
        "How many days has {}?", "What is the number of days in {}?", "The month of {} lasts how many days?",
        "Give the length of {} in days.", "Count the days of {}.")),
    "square": Relation(SQUARES, (
        "What is {} squared?", "What is the square of {}?", "Multiply {} by itself.", "What is {} times {}?",
        "Give the square of {}."), (
        "What is the square root of {}?", "Which number squared is {}?", "Take the square root of {}.",
        "The number {} is the square of which number?")),
    "roman": Relation(ROMAN, (
        "How is {} written in Roman numerals?", "Write {} as a Roman numeral.", "What is the Roman numeral for {}?",
        "The Romans wrote {} how?", "Give {} in Roman numerals."), (
        "Which number is the Roman numeral {}?", "Read the Roman numeral {}.", "What does {} mean in Roman numerals?",
        "The Romans wrote {} for which number?")),
    "young": Relation(YOUNG, (
        "What is a young {} called?", "What do you call the young of the {}?", "Name the young of the {}.",
        "A baby {} is called what?", "Which word means a young {}?")),
    "plural": Relation(PLURALS, (
        "What is the plural of {}?", "One {}, two what?", "Give the plural of the word {}.",
        "More than one {} are called what?", "How do you write {} in the plural?"), (
        "What is the singular of {}?", "Two {}, one what?", "Give the singular of the word {}.",
        "The word {} is the plural of which word?")),
    "opposite": Relation(OPPOSITES, (
        "What is the opposite of {}?", "Which word means the opposite of {}?", "Give the opposite of {}.",
        "The contrary of {} is what?", "Name the antonym of {}.")),
    "past tense": Relation(PAST_TENSES, (
        "What is the past tense of {}?", "Today I {}, yesterday I what?", "Give the past form of {}.",
        "How do you say {} in the past?", "Put the verb {} into the past tense."), (
        "The form {} is the past tense of which verb?", "Yesterday I {}, today I what?", "Give the present form of {}.",
        "Which verb has the past tense {}?")),
    "sides": Relation(SIDES, (
        "How many sides has the {}?", "What is the number of sides of the {}?", "Count the corners of the {}.",
        "The {} has how many corners?", "Give the number of corners of the {}."), (
        "Which figure has {} sides?", "Name the polygon with {} sides.", "A figure with {} corners is called what?",
        "What do you call a polygon with {} corners?")),
}

REPEAT = "Repeat the word {}."
