from itertools import pairwise
from pathlib import Path

import pytest
import regex
from building import json_lines
from hypothesis import given, settings
from hypothesis import strategies as st

from glit.models.tokenizer import TextTokenizer
from glit.recipes.resources import mini_model
from glit.stages.split import SplitConfig, SplitStage
from glit.text.sentences import make_splitter
from glit.text.spans import locate, token_spans


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(mini_model("matcher"))


def oracle(text: str, span: tuple[int, int], tokenizer: TextTokenizer) -> tuple[int, int]:
    """The tokens whose CLIP piece touches the span, found piece by piece.

    Pieces are matched on the caption itself (letters and their lower case are both letters),
    so this knows the character range of every token without any offsets.
    """
    first = last = None
    position = 1
    for piece in PLAIN_PIECES.finditer(text):
        number = len(tokenizer.encode([piece.group()])[0])
        if piece.start() < span[1] and piece.end() > span[0]:
            first = position if first is None else first
            last = position + number
        position += number
    assert first is not None and last is not None
    return first, last


PLAIN_PIECES = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", regex.IGNORECASE
)

CAPTIONS = [
    "A cat. A dog sits on the mat.",
    "Ein Café über der Straße. Zwei Äpfel liegen dort.",
    "An emoji 😀 here. Family 👨‍👩‍👧 there. End ✨.",
    "一只猫坐在垫子上。旁边有一只狗。",
    "“Curly quotes” say ‘hi’… Then it’s over. Isn't it?",
    "Tom &amp; Jerry &lt;3. HTML &#39;entities&#39; stay.",
    "It says <|endoftext|> on the wall. A second <|startoftext|> too.",
    "İstanbul is BIG. ΣΊΣΥΦΟΣ rolls. ǅ titlecase.",
    "No space after.Next one starts at once!And another?Yes.",
    "Numbers 1.5 m and 3,000 px. A U.S. flag.",
    "Tabs\tand\nnew lines.  Two spaces.\n\nA paragraph.",
    "Ends without a stop",
]


@pytest.mark.parametrize("text", CAPTIONS)
@pytest.mark.parametrize("splitter", ["sentencex", "dot"])
def test_token_spans_cover_exactly_the_sentences_tokens(text, splitter, tokenizer):
    spans = make_splitter(splitter, "en")(text)
    assert spans
    found = token_spans(text, spans, tokenizer.encode)
    assert found == [oracle(text, span, tokenizer) for span in spans]


def test_a_boundary_inside_a_run_of_punctuation(tokenizer):
    text = 'He said "stop."(Then he left.) Done.'
    spans = locate(['He said "stop."', "(Then he left.)", "Done."], text)
    whole = tokenizer.hf.convert_ids_to_tokens(tokenizer.encode([text])[0])
    found = [
        "".join(whole[a - 1 : b - 1]).replace("</w>", "")
        for a, b in token_spans(text, spans, tokenizer.encode)
    ]
    assert found == ['hesaid"stop."', "(thenheleft.)", "done."]


WORDS = st.sampled_from(
    [
        "cat",
        "Café",
        "naïve",
        "😀",
        "👨‍👩‍👧",
        "猫",
        "“quoted”",
        "it’s",
        "&amp;",
        "1.5",
        "İ",
        "ß",
        "ΣΑΣ",
    ]
    + ["don't", "<|endoftext|>", "...", "?!", "—", "e\u0301", "ﬁ", "東京", "\u200b", "x_y", "'s"]
)


@settings(max_examples=150)
@given(
    sentences=st.lists(st.lists(WORDS, min_size=1, max_size=6), min_size=1, max_size=5),
    gap=st.sampled_from([" ", "  ", "\n", "\t"]),
)
def test_any_text_cut_at_spaces(sentences, gap):
    import unicodedata

    tokenizer = _cached_tokenizer()
    pieces = [unicodedata.normalize("NFC", " ".join(words)) + "." for words in sentences]
    text = gap.join(pieces)
    spans = locate(pieces, text)
    found = token_spans(text, spans, tokenizer.encode)
    assert found == [oracle(text, span, tokenizer) for span in spans]
    whole = tokenizer.encode([text])[0]
    for piece, (start, end) in zip(pieces, found, strict=True):
        assert whole[start - 1 : end - 1] == tokenizer.encode([piece])[0]


_tokenizers: list[TextTokenizer] = []


def _cached_tokenizer() -> TextTokenizer:
    if not _tokenizers:
        _tokenizers.append(TextTokenizer(mini_model("matcher")))
    return _tokenizers[0]


def test_special_tokens_in_a_caption_are_ordinary_text(tokenizer):
    ids = tokenizer.encode(["a <|endoftext|> b"])[0]
    assert tokenizer.end_id not in ids
    closed = tokenizer.encode_closed(["word " * 200], context=77)[0]
    assert (len(closed), closed[0], closed[-1]) == (77, tokenizer.start_id, tokenizer.end_id)


def test_locate_takes_repeated_pieces_in_order_and_refuses_strangers():
    assert locate(["ab. ", " ", "ab."], "ab. ab.") == [(0, 3), (4, 7)]
    with pytest.raises(ValueError, match="does not occur"):
        locate(["xy"], "ab")


def stage(tokenizer, **options) -> SplitStage:
    return SplitStage(SplitConfig(**options), tokenizer)


def test_window_and_truncation_flags(tokenizer):
    long = "word " * 90 + "end."
    sentences = stage(tokenizer).sentences("Short one. " + long + " " + long + " " + long)
    assert [s.truncated for s in sentences] == [False, True, True, True]
    assert [s.in_window for s in sentences] == [s.token_end <= 247 for s in sentences]
    assert sentences[0].in_window and not sentences[-1].in_window


def test_five_thousand_words(tokenizer):
    text = " ".join(f"Sentence number {index} is here." for index in range(1000))
    sentences = stage(tokenizer).sentences(text)
    assert len(sentences) == 1000
    assert text[sentences[-1].char_start : sentences[-1].char_end] == "Sentence number 999 is here."
    assert all(a.token_end == b.token_start for a, b in pairwise(sentences))


def test_real_captions_are_covered_but_for_whitespace(tokenizer):
    folder = Path(__file__).parents[1] / "files"
    rows = json_lines(folder / "captions.jsonl")
    split = stage(tokenizer)
    for row in rows:
        text = row["caption"]
        sentences = split.sentences(text)
        assert all(text[s.char_start : s.char_end] == s.text for s in sentences)
        left = "".join(text.split())
        kept = "".join("".join(s.text.split()) for s in sentences)
        assert left == kept
        assert sentences[-1].token_end == len(tokenizer.encode([text])[0]) + 1
