import re
from itertools import pairwise
from pathlib import Path

import pytest
from building import json_lines
from hypothesis import example, given, settings
from hypothesis import strategies as st

from glit.errors import UserError
from glit.text.languages import text_language
from glit.text.list_items import keep_list_markers
from glit.text.sentences import make_splitter, repair, split_at_dots
from glit.text.spans import Span, locate

CHECKED = Path(__file__).parents[1] / "files" / "sentences.jsonl"

# a bar stands where a sentence ends
MENDED = {
    "a quotation closed by another mark": (
        'The sign says “MAR".| Sand lies around.| The flipper is black.| There is an “M” on it.| '
        "It is curved."
    ),
    "the same the other way round": (
        'The text is "BRD”.| Beneath it, there are tags.| One reads "ONE”.| It is red.'
    ),
    "a quotation never closed": (
        'Only the letters "RIVE and the number "11" can be seen.| Going up the side, '
        '"PROSITRA" is printed in black.| There is a star.'
    ),
    "inches": 'A 5" pipe.| The 6" pipe is red.',
    "an abbreviation inside quotes": 'A bus is bound for "Main St."| This bus is white.',
    "curly": "It stops at “East 42nd St.”| A white sign hangs there.",
    "a letter": "A circle is on the right of the F.| A dark rail is in front of it.",
    "a word that is an abbreviation, too": "The wall is full of street art.| Messages hang there.",
    "an ellipsis": "It fades…| The sky is dark.",
    "a stop before a parted bracket": "It has dots (on the right side. )| Next to it there is one.",
    "no stop after a quotation": "A tag is next to “STOP”| To the right of the pole, there is one.",
    "straight": 'The bin reads "ONLY"| A white arrow is between the words.',
    "a comma inside": "Two bolts frame “AHEAD,”| Below the sign, there are brackets.",
    "a line without a stop": "A knight in a field\n|The knight has a beard.",
    "a decimal, respaced": "Two poles are about 1. 5 m apart.| They are grey.",
    "an address, respaced": "It says www. criss. co. uk on top.| The wall is white.",
    "its end alone": "A laptop is open to cars. com in blue.| It is black.",
}

LEFT_ALONE = [
    "It is near the “Daily News” Building on a hill.",
    "The word “Stop” On a sign.",
    "A poster of “Yesterday” The Beatles is on the wall.",
    'A sign that reads" In memory of" is carved.',
    'It reads "Please stop. Thank you. The end" in red.',
    "It is moored with 'MAGGIE M. The second' on its hull.",
    "It (a dog. The cat) sat.",
    "A statue of John W. Thomas stands in St. Louis.",
    "The U.S. Capitol and the U.S. flag.",
    "A Fokker Dr. 1 Triplane is on display.",
    "A price of $3.95 and 1.5 m, e.g. at a shop in Washington, D.C., is on it.",
    'The words "Save the Whales!" are white.',
    "It stands next to the\nEmpire State Building, to the left,\nThe dog says.",
    "The dogs' tails wag.| The cats' tails are still.",
    "Room 5.| The dogs are here.",
    "Room 5.|\n7 dogs are here.",
    'It is black.|"FORD" is on it.| The roof is red.',
    'It reads,"OPEN. The end" in red.',
    'It reads "no stop\nThe end is near" in red.',
    "It ends here.|The next one starts.",
]


def cut(text: str, spans: list[Span]) -> list[str]:
    return [text[a:b] for a, b in spans]


def parted(marked: str) -> tuple[str, list[str]]:
    """The text without its bars, and its sentences."""
    return marked.replace("|", ""), [piece.strip() for piece in marked.split("|")]


@pytest.mark.parametrize("name", MENDED)
def test_what_sentencex_gets_wrong_is_mended(name):
    text, sentences = parted(MENDED[name])
    assert cut(text, make_splitter("sentencex", "en")(text)) == sentences


@pytest.mark.parametrize("marked", LEFT_ALONE)
def test_what_only_looks_like_a_sentence_end_is_left_alone(marked):
    text, sentences = parted(marked)
    assert cut(text, make_splitter("sentencex", "en")(text)) == sentences


@pytest.mark.parametrize("marked", [*MENDED.values(), *LEFT_ALONE])
def test_sentences_that_are_right_stay_as_they_are(marked):
    text, sentences = parted(marked)
    spans = locate(sentences, text)
    assert repair(text, spans) == spans


@pytest.mark.parametrize(
    "pieces",
    [
        ["The words “Save the Whales!”", "are white."],
        ['It reads "Please stop.', 'Thank you."'],
        ["It reads “STOP.", "” is white."],
        ["It (a dog.", "The cat) sat."],
    ],
)
def test_quotations_and_parentheses_stay_whole_whatever_the_splitter_says(pieces):
    text = " ".join(pieces)
    assert repair(text, locate(pieces, text)) == [(0, len(text))]


def test_a_closing_mark_goes_with_its_sentence():
    text = 'It says "BEER. " The light is on.'
    assert cut(text, repair(text, [(0, 14), (15, len(text))])) == [
        'It says "BEER. "',
        "The light is on.",
    ]


def test_a_mark_alone_is_no_sentence():
    text = 'It is red. " The dog barks.'
    spans = [(0, 10), (11, len(text))]
    assert repair(text, spans) == spans


def test_a_quotation_that_takes_too_long_to_close_holds_nothing_together():
    text = "It says “STOP. " + "The dog is brown. " * 20 + "It is 5” long."
    assert len(make_splitter("sentencex", "en")(text)) == 22


def test_only_english_is_repaired_and_the_bare_dot_never():
    text, sentences = parted(MENDED["an abbreviation inside quotes"])
    assert cut(text, make_splitter("sentencex", "en")(text)) == sentences
    assert cut(text, make_splitter("sentencex", "de")(text)) == [text]
    decimal = "It is 1. 5 m high."
    assert cut(decimal, make_splitter("dot", "en")(decimal)) == ["It is 1.", "5 m high."]


def test_checked_captions():
    """Sentences of real captions; two end without any mark, and nothing tells them apart."""
    split = make_splitter("sentencex", "en")
    wrong = []
    for row in json_lines(CHECKED):
        text = "".join(row["sentences"])
        if cut(text, split(text)) != [sentence.strip() for sentence in row["sentences"]]:
            wrong.append(row["id"])
    assert wrong == ["docci-2028", "docci-4826"]


PIECES = st.sampled_from(
    ['"', "“", "”", "'", "‘", "’", "(", ")", "[", ".", ". ", "...", "…", "!", "?", ", ", " ", "  "]
    + ["\n", "\n\n", "\t", "\xa0", "A", "The ", "To the ", "Next", "St", "U.S.", "Dr", "art"]
    + ["is ", "are ", "dog", "Bob", "É", "猫", "1", "5", "4. 5", "www. ", "com ", "co. uk"]
)
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=80)


@st.composite
def texts_with_spans(draw) -> tuple[str, list[Span]]:
    """Any text, cut at any of its whitespace."""
    text = draw(TEXTS)
    spans = []
    start = 0
    gaps = [match.span() for match in re.finditer(r"\s+", text)]
    for left, right in [*(gap for gap in gaps if draw(st.booleans())), (len(text), len(text))]:
        piece = text[start:left]
        if piece.strip():
            first = start + len(piece) - len(piece.lstrip())
            spans.append((first, first + len(piece.strip())))
        start = right
    return text, spans


@settings(max_examples=500)
@given(texts_with_spans())
def test_repaired_spans_hold_every_letter_and_digit_once(case):
    text, spans = case
    repaired = repair(text, spans)
    assert all(text[a:b] == text[a:b].strip() != "" for a, b in repaired)
    assert all(b <= c for (_, b), (c, _) in pairwise([*repaired, (len(text), len(text))]))
    covered = {index for span in repaired for index in range(*span)}
    assert all(index in covered for index, char in enumerate(text) if char.isalnum())
    assert repair(text, repaired) == repaired


@settings(max_examples=500)
@given(texts_with_spans())
@example(('a "b. c" d', [(0, 5), (6, 10)]))
@example(("a art. The dog", [(0, 14)]))
def test_boundaries_move_only_where_a_rule_says_so(case):
    text, spans = case
    before = {end: start for (_, end), (start, _) in pairwise(spans)}
    after = {end: start for (_, end), (start, _) in pairwise(repair(text, spans))}
    for end in after.keys() - before.keys():
        gap = text[end : after[end]]
        assert gap and gap.isspace()
        assert text[after[end] :].lstrip("\"“‘'«(")[0].isupper()
        assert "\n" in gap or text[end - 1] in "\"”»’')].!?…"
    for end in before.keys() - after.keys():
        left, right = text[:end], text[before[end] :]
        held = re.search(r'["“„«(]', left) and re.search(r'["”»)]', right)
        goes_on = re.search(r'[."”»]$', left) and re.match(r"\d|[^\W\d_]", right)
        assert held or goes_on


@settings(max_examples=300)
@given(TEXTS)
def test_the_default_splitter_on_any_text(text):
    spans = make_splitter("sentencex", "en")(text)
    assert all(text[a:b] == text[a:b].strip() != "" for a, b in spans)
    assert all(b <= c for (_, b), (c, _) in pairwise([*spans, (len(text), len(text))]))
    kept = "".join(filter(str.isalnum, "".join(cut(text, spans))))
    assert kept == "".join(filter(str.isalnum, text))


@pytest.mark.parametrize(
    "piece", ['"', "“", "'", '" ', "('", "'a ", '"a" The ', "a\nThe ", ". ", "a. The ", "(a "]
)
def test_a_hundred_thousand_odd_characters(piece):
    """In linear time: quadratic, each of these would take minutes."""
    text = piece * (100_000 // len(piece))
    words = [match.span() for match in re.finditer(r"\S+", text)]
    for spans in ([(0, len(text.rstrip()))], words):
        repaired = repair(text, spans)
        assert repaired[0][0] == 0 and repaired[-1][1] == len(text.rstrip())


def test_bare_dots_cut_decimals_as_the_papers_scripts_do():
    text = "A 1.5 m dog... It sat."
    assert cut(text, split_at_dots(text)) == ["A 1.", "5 m dog.", "It sat."]


@given(text=st.text(max_size=200))
@settings(max_examples=150)
def test_bare_dots_on_any_text(text):
    spans = split_at_dots(text)
    assert all(text[a:b] == text[a:b].strip() != "" for a, b in spans)
    assert all(b <= c for (_, b), (c, _) in pairwise(spans))


@pytest.mark.parametrize(
    "text", ["Vitamin C\xa0. Next.", "Plan B\u3000. Yes.", "I\xa0.", "A\u2009. B."]
)
def test_unusual_spaces_do_not_upset_the_splitter(text):
    spans = make_splitter("sentencex", "en")(text)
    assert spans and all(text[a:b].strip() for a, b in spans)


def test_punkt_with_its_english_model(monkeypatch):
    import fetched
    import nltk

    monkeypatch.setattr(nltk.data, "path", [str(fetched.punkt_data())])
    text = (
        'Dr. Smith\'s "Stop!" is on a 1.5 m ladder. It leans on the wall of "Main St." A cat sits.'
    )
    assert cut(text, make_splitter("punkt", "en")(text)) == [
        'Dr. Smith\'s "Stop!" is on a 1.5 m ladder.',
        'It leans on the wall of "Main St."',
        "A cat sits.",
    ]


def test_punkt_without_its_data_says_what_to_do(monkeypatch):
    import nltk

    monkeypatch.setattr(nltk.data, "path", [])
    with pytest.raises(UserError, match="punkt_tab on a connected machine, or use 'sentencex'"):
        make_splitter("punkt", "en")


LISTS = {
    "lines": "It shows a kitchen:|\n1. A kettle is on it.|\n2. Two cups stand.|\n3. A cat sleeps.",
    "one line": "1. A kettle is on it.| 2. Two cups stand there.| 3. A cat sleeps.",
    "no stops": "1. A red kettle| 2. Two white cups",
    "brackets": "There are:| (1) A red cup.| (2) A blue cup.",
    "half brackets": "1) A red cup.| 2) A blue cup.",
    "stop and bracket": "1.) A red cup| 2.) A blue cup",
    "letters": "Here they are:|\na) A dog sits.|\nb) A cat lies.",
    "letters and stops": "a. A dog that sits| b. A cat that lies| c. A bird that sings",
    "Roman": "i. A dog sits.| ii. A cat lies.| iii. A bird sings.| iv. A fish swims.",
    "Roman capitals": "I. The dog sits.|\nII. The cat lies.",
    "bullets": "• A dog sits there| • A cat lies there",
    "bullets and numbers": "• 9. A dog sits there| • 10. A cat lies there",
    "dashes": "- A red kettle\n|- Two white cups",
    "two sentences an item": "1. A dog sits.| It is red.|\n2. A cat lies.| It is blue.",
    "on lines of their own": "1.\nA dog sits.|\n2.\nA cat lies.",
    "from seven on": "7. A dog sits.|\n8. A cat lies.",
    "no list: a number": "It is in room 2.| The dog sits.",
    "no list: initials": "A. B. Smith sits.| He is old.",
    "no list: a war": "It is of World War I.| He fought.",
    "no list: a king": "Here Napoleon I. is crowned.",
    "no list: a count": "There are 3.| They run.",
    "a reference": "Smith et al. [2004] show a dog.| It runs.",
}


@pytest.mark.parametrize("name", LISTS)
def test_markers_of_lists_begin_the_sentence_after_them(name):
    text, sentences = parted(LISTS[name])
    split = make_splitter("sentencex", "en")
    assert cut(text, split(text)) == sentences
    assert cut(text, keep_list_markers(text, split(text))) == sentences


@given(st.text("1ai2bI.)( \nAx•-", max_size=40))
def test_list_markers_keep_every_letter(text):
    split = make_splitter("sentencex", "en")
    spans = split(text)
    assert all(start < end for start, end in spans)
    assert all(one[1] <= two[0] for one, two in pairwise(spans))
    rest = list(text)
    for start, end in spans:
        rest[start:end] = " " * (end - start)
        assert text[start:end] == text[start:end].strip()
    assert not "".join(rest).strip()


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("hy", "Շունը նստած է։| Կատուն քնած է։"),
        ("ru", "На ул. Мира стоит дом.| Рядом сидит собака."),
        ("de", "Der Hund ist z. B. auf der Wiese und am See.| Die Katze ist nicht zu sehen."),
        ("el", "Ένας σκύλος κάθεται.| Μια γάτα κοιμάται."),
    ],
)
def test_a_text_is_split_as_one_of_its_own_language(language, text):
    assert text_language(text, "en") == language
    plain, sentences = parted(text)
    for asked in ("en", language):
        assert cut(plain, make_splitter("sentencex", asked)(plain)) == sentences


def test_the_language_asked_for_stays_where_a_text_fits_it():
    assert text_language("The sign says “Привет” and the dog is on it.", "en") == "en"
    assert text_language("A cat. Ein Hund.", "en") == "en"
    assert text_language("Кіт спить.", "uk") == "uk"
    assert text_language("Собака бежит.", "bg") == "bg"
