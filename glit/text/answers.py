"""Clean what a model wrote: cut what is no part of its answer, and tell what cannot be cut.

This is the one place that knows what answers carry. Tokens of a model's own tokenizer come first,
then those that are known of others. Captions of other people are looked at with the same rules.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanAnswer:
    """An answer without what is no part of it."""

    text: str
    cut: tuple[str, ...] = ()
    """Names of what was cut; empty if the text is as the model wrote it, but for blanks."""
    lost: str = ""
    """What stands for words or characters that nobody can restore; empty for a whole text."""


def clean_answer(text: str, *, tokens: Collection[str] = (), prompt: str = "") -> CleanAnswer:
    r"""Cut control tokens, marks, thoughts, roles and further turns out of an answer.

    Args:
        text: as the model wrote it.
        tokens: the control tokens of the model's tokenizer, where it is known.
        prompt: is cut from the beginning, where the model repeats it; a prompt that does not end
            like a sentence may be the beginning of the caption, and stays.

    >>> clean_answer("<think>A cat?</think>A dog.</s>").text
    'A dog.'
    >>> clean_answer("A\u0120dog\u0120runs. assistant").text
    'A dog runs. assistant'
    >>> clean_answer("A <unk> dog.").lost
    '<unk>'
    """
    cut: list[str] = []
    steps: tuple[tuple[str, Callable[[str], str]], ...] = (
        ("escape codes", lambda each: _ESCAPES.sub("", each)),
        ("byte or vocabulary marks", _without_marks),
        ("thoughts", without_thoughts),
        ("further turns", lambda each: _first_turn(each, prompt)),
        ("boxes", lambda each: _BOXES.sub("", _POINTS.sub(r"\1", each))),
        ("control tokens", lambda each: _without_tokens(each, tokens)),
        ("fences", _unfenced),
        ("HTML", _without_html),
    )
    is_plain = not tokens and not _ODD.search(text)
    for name, step in steps:
        if is_plain and name != "further turns":
            continue
        found = step(text)
        if found != text:
            cut.append(name)
            text = found.lstrip()
    if cut:
        text = _BEFORE_MARK.sub(r"\1", _BLANKS.sub(" ", _LINE_ENDS.sub("", text))).rstrip(" \t")
    lost = None if is_plain else _LOST.search(text)
    return CleanAnswer(text=text, cut=tuple(cut), lost=lost[0] if lost else "")


def control_tokens(tokenizer: Any) -> tuple[str, ...]:
    """The tokens of a transformers tokenizer that are no text: special ones, and added markers."""
    special = set(tokenizer.all_special_tokens)
    return tuple(
        sorted(
            (each for each in {*special, *tokenizer.get_added_vocab()} if _is_marker(each)),
            key=len,
            reverse=True,
        )
    )


def _is_marker(token: str) -> bool:
    return len(token) > 2 and bool(_MARKER.fullmatch(token))


_ODD = re.compile(
    r"[^\x20-\x7e\n\r\t‘’“”…–—]|[<\[&`\\|]|##|@@|addCriterion|assistantfinal|^\s*analysis[A-Z]"
)
"""What every step but that of the turns begins with; most captions have nothing of it."""
_MARKER = re.compile(r"[<\[◁{]\S*\w\S*[>\]▷}]|\S*\|\S*\w\S*")
_LINE_ENDS = re.compile(r"[ \t]+(?=\n)")
_BLANKS = re.compile(r"(?<=\S)[ \t]{2,}(?=\S)")
_BEFORE_MARK = re.compile(r"(?<=\w)[ \t]+([.,;:!?](?:\s|$))")
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202d\u202e]"
)

# -- bytes and vocabulary --------------------------------------------------------------------------

_BYTES = re.compile(r"(?:<0x[0-9A-Fa-f]{2}>)+")
_BYTE_LEVEL = re.compile(r"[^\s(\"“‘«„'—–-][ĠĊ]")
"""Of Maltese, which has these letters, they begin a word."""
_PIECES = (
    (re.compile(r"▁+(?=\w)|(?<=\w)▁+"), " "),  # SentencePiece
    (re.compile(r"(?<=\w) ##(?=\w)"), ""),  # WordPiece
    (re.compile(r"(?<=\w)@@ (?=\w)"), ""),  # subword-nmt
    (re.compile(r"</w>\s?"), " "),  # CLIP
)
_MISREAD = re.compile("[\xc2-\xf4][\x80-\x9f]|â€|(?<=[a-z])Ã[\xa0-\xbf]")
"""UTF-8 that was read as Latin-1 or Windows-1252."""
_CONTROL = re.compile("[\x80-\x9f]")
_HALF = re.compile(r"(?:\s*\ufffd)+\W*$")
"""A character that the token limit cut."""


def _without_marks(text: str) -> str:
    text = _BYTES.sub(lambda found: _text_of_bytes(found[0]), text)
    if _BYTE_LEVEL.search(text):
        raw = b"".join(_byte_of().get(each, each.encode(errors="replace")) for each in text)
        text = raw.decode(errors="replace")
    if _MISREAD.search(text):
        text = _read_again(text)
    for mark, wanted in _PIECES:
        text = mark.sub(wanted, text)
    return _HALF.sub("", _CONTROL.sub("", text))


def _text_of_bytes(marks: str) -> str:
    return bytes.fromhex(re.sub(r"<0x|>", "", marks)).decode(errors="replace")


@cache
def _byte_of() -> dict[str, bytes]:
    """Bytes by the characters that stand for them in vocabularies of bytes (Radford et al. 2019);
    blanks stand for themselves here."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [each for each in range(256) if each not in own]
    return {
        **{chr(each): bytes([each]) for each in own},
        **{chr(256 + at): bytes([each]) for at, each in enumerate(others)},
    }


def _read_again(text: str) -> str:
    """The text with its characters as the bytes that they were; unchanged if they are none."""
    try:
        return b"".join(_windows_byte(each) for each in text).decode()
    except ValueError:
        return text


def _windows_byte(character: str) -> bytes:
    return character.encode("latin-1" if character < "\u0100" else "cp1252")


# -- thoughts --------------------------------------------------------------------------------------

_THOUGHT = (
    r"(?:[\w-]+:)?(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflect(?:ion)?|analysis|summary|"
    r"scratch_?pad|(?:inner_?)?monologue|plan(?:ning)?|rationale)(?::[\w-]+)?"
)
_MARK = re.compile(
    rf"(?P<open><{_THOUGHT}(?:\s[^<>]*)?>|\[THINK\]|◁think▷|<\|channel>\s*thought\b|<\|(?:"
    rf"start_thinking|begin_of_thought|begin_of_thinking|inner_prefix|think(?:ing)?)\|>)"
    rf"|</{_THOUGHT}\s*>|\[/THINK\]|◁/think▷|<channel\|>|<\|(?:end_thinking|end_of_thought|"
    rf"end_of_thinking|inner_suffix|/think(?:ing)?)\|>",
    re.IGNORECASE,
)
_FINAL = re.compile(r"<\|channel\|>\s*final\b[^<]*<\|message\|>")
_BARE_FINAL = re.compile(r"^\s*(?:(?:analysis|commentary)(?=[\WA-Z]).*)?assistantfinal", re.DOTALL)
"""The same after special tokens were left out."""
_UNSPOKEN = re.compile(r"<\|channel\|>\s*(?:analysis|commentary)|^\s*analysis(?=[A-Z])")
_ANSWERS = (
    r"answer|caption|response|solution|final(?:_answer)?|output|description|result", "conclusion",
)  # fmt: skip
_INSIDE = tuple(
    re.compile(rf"<({names})>(.*?)(?:</\1\s*>|$)", re.IGNORECASE | re.DOTALL) for names in _ANSWERS
)
_MARKED = re.compile(
    r"<\|(?:begin_of_solution|start_response)\|>(.*?)(?:<\|(?:end_of_solution|end_response)\|>|$)"
    r"|\[BEGIN FINAL RESPONSE\](.*?)(?:\[END FINAL RESPONSE\]|$)",
    re.IGNORECASE | re.DOTALL,
)


def without_thoughts(text: str) -> str:
    """The answer after, or between, a model's thoughts; empty if the token limit cut a thought.

    Templates may open the thought in the prompt, so that only its end is in the text.

    >>> without_thoughts("<think>A cat?</think> A cat."), without_thoughts("A cat? </think>Two.")
    (' A cat.', 'Two.')
    >>> without_thoughts("<think>Let me look"), without_thoughts("A cat.")
    ('', 'A cat.')
    """
    if finals := [*_FINAL.finditer(text)]:
        text = text[finals[-1].end() :]
    elif bare := _BARE_FINAL.match(text):
        text = text[bare.end() :]
    elif _UNSPOKEN.search(text):
        return ""
    text = _outside(text)
    for inside in (_MARKED, *_INSIDE):
        if found := inside.search(text):
            return next(each for each in reversed(found.groups()) if each is not None)
    return text


def _outside(text: str) -> str:
    kept, end, is_open = [], 0, False
    for mark in _MARK.finditer(text):
        if not mark["open"]:
            kept = kept if is_open else []
            end, is_open = mark.end(), False
        elif not is_open:
            kept.append(text[end : mark.start()])
            is_open = True
    return "".join(kept if is_open else [*kept, text[end:]])


# -- turns -----------------------------------------------------------------------------------------

_HEAD = (
    r"(?:<\|(?:im_start|start_header_id|start_of_role|role_start|start|turn)\|>|<start_of_turn>"
    r"|<\|turn>)"
)
_TAIL = r"(?:<\|(?:end_header_id|end_of_role|role_end|message|im_middle|im_sep)\|>)?"
_SPEAKS = r"(?:assistant|model|bot)"
_LABEL = r"(?:assistant|model|bot|ai|gpt-?4?|response|answer)"
_ECHOED = re.compile(
    rf"^\s*(?:{_HEAD}\s*(?:user|system|human)\b.*?{_HEAD}\s*{_SPEAKS}\b{_TAIL}"
    r"|<\|(?:user|system)\|>.*?<\|assistant\|>|(?:<s>\s*)?\[INST\].*?\[/INST\]"
    r"|(?:USER|HUMAN|Human|User)\s*:.*?(?:ASSISTANT|Assistant)\s*:)",
    re.DOTALL,
)
"""The whole talk, the question included."""
_LEADS = re.compile(
    rf"^\s*(?:{_HEAD}(?:\s*{_SPEAKS}\b)?{_TAIL}|<\|assistant\|>|\[/INST\]|<｜Assistant｜>"
    rf"|(?:\#{{1,4}}\s*|\*\*)?{_LABEL}(?:\*\*\s*:|\s*:\s*\*\*|\s*:)|{_SPEAKS}\s*(?=\n)"
    r"|(?:please\s+)?(?:describe|caption)\s+(?:this|the)\s+(?:image|picture|photo)[^.:\n]*[.:\n])",
    re.IGNORECASE,
)
_ENDS = re.compile(
    rf"{_HEAD}|<\|(?:im_end|eot_id|eom_id|end|endoftext|end_of_text|end_of_turn|endofturn|"
    r"end_of_turn_token|start_of_turn_token|user_token|user|system|assistant|observation|return|"
    r"call|eos|eod|eot|endofprompt|end_response|end_of_solution|end_of_sentence|message_end|"
    r"end_of_document)\|>|</s>|<eos>|<end_of_turn>|<turn\|>|<end_of_utterance>|<EOT>|\[INST\]|"
    r"\[/?EOS\]|<｜(?:end▁of▁sentence|User|Assistant)｜>",
    re.IGNORECASE,
)
_SAYS = re.compile(
    r"(?:\n\s*(?:\#{1,4}\s*|\*\*)?|(?<=[.!?\"”])\s+)(?:USER|HUMAN|ASSISTANT)(?:\*\*)?\s*:"
    r"|\n\s*(?:\#{1,4}\s*|\*\*)?(?:User|Human)(?:\*\*)?\s*:(?=.*\n\s*(?:\#{1,4}\s*|\*\*)?Assistant)"
    r"|\n\s*(?:\#{1,4}\s*(?:Human|User|Instruction|Input)\s*:|(?:\*\*)?Assistant(?:\*\*)?\s*:)"
    r"|\n\s*(?:user|assistant|model|human|system)\s*(?:\n|$)",
    re.DOTALL,
)
"""A label of the next speaker."""


def _first_turn(text: str, prompt: str) -> str:
    """The answer without the talk before it, the role that speaks, and all turns after it."""
    text = _ECHOED.sub("", text, count=1)
    own = prompt.strip() if prompt.strip().endswith((".", ":", "?", "!")) else ""
    while True:
        rest = _LEADS.sub("", text, count=1)
        if own and rest.lstrip().startswith(own):
            rest = rest.lstrip()[len(own) :]
        if (end := _ENDS.match(rest.lstrip())) and not _LEADS.match(rest):
            rest = rest.lstrip()[end.end() :]
        if rest == text:
            break
        text = rest
    for end in (_ENDS, _SAYS):
        if found := end.search(text):
            text = text[: found.start()]
    return text


# -- tokens ----------------------------------------------------------------------------------------

_POINTS = re.compile(r"<points?\s[^<>]*>(.*?)</points?>", re.DOTALL)
_BOXES = re.compile(
    r"<(box|quad|bbox|poly|object)>.*?</\1>|<\|(box|quad|point|coord)_start\|>.*?<\|\2_end\|>"
    r"|\s*(?:<(?:loc|seg|patch_index|bin)_?\d+>)+|\s*\[\[\d{1,4}(?:,\s*\d{1,4}){3}\]\]",
    re.DOTALL,
)
_NAMES = (
    "bos|eos|pad|sep|cls|image|img|video|audio|image_soft_token|start_of_image|end_of_image|"
    r"fake_token_around_image|global-img|row_\d+_col_\d+|img_context|imagehere|image_\d+|im_start|"
    r"im_end|im_patch|image_placeholder|eot|ref|phrase|grounding|delimiter_of_multi_objects|"
    f"{'|'.join(_ANSWERS)}"
)
_TOKENS = re.compile(
    rf"<\|[^<>|\s][^<>|\n]{{0,40}}\|>|<｜[^｜\n]{{1,40}}｜>|<\|[\w-]{{1,30}}>|<[\w-]{{1,30}}\|>|"
    rf"</?s>|</?(?:{_NAMES})>|<</?SYS>>|addCriterion|\[(?:PAD|CLS|SEP|BOS|EOS|IMG|IMG_BREAK|"
    rf"IMG_END|/?INST|/?SYSTEM_PROMPT)\]",
    re.IGNORECASE,
)
_UNKNOWN = (
    r"<\|?(?:unk|mask|unused_?\d*|extra_id_\d+|reserved_special_token_\d+|placeholder_?\d+)\|?>"
    r"|\[(?:unused_?\d*|UNK|MASK)\]|<｜place▁holder▁no▁\d+｜>"
)
_LOST = re.compile(rf"{_UNKNOWN}|\ufffd", re.IGNORECASE)
_LOST_AT_ENDS = re.compile(rf"^(?:\s|{_UNKNOWN})+|(?:\s|{_UNKNOWN})+$", re.IGNORECASE)


def _without_tokens(text: str, tokens: Collection[str]) -> str:
    """The text without tokens; those that stand for a lost word stay, but at its ends."""
    for token in tokens:
        if token in text and not _LOST.fullmatch(token):
            text = text.replace(token, " ")
    text = _TOKENS.sub(lambda found: found[0] if _LOST.fullmatch(found[0]) else " ", text)
    return _LOST_AT_ENDS.sub("", text) if _LOST.search(text) else text


# -- writing ---------------------------------------------------------------------------------------

_FENCE = re.compile(r"^\s*```[\w+-]*[ \t]*\n(.*?)\n?\s*(?:```\s*)?$", re.DOTALL)
_BLOCKS = re.compile(r"</?(?:p|br|div|ul|ol|li|h[1-6]|pre|blockquote)(?:\s[^<>]*)?/?>\s*", re.I)
_INLINE = re.compile(r"</?(?:b|i|em|strong|u|span|code|small)(?:\s[^<>]*)?>", re.I)
_ENTITY = re.compile(r"&(?:amp|quot|lt|gt|nbsp|apos|\#\d{2,5}|\#[xX][0-9a-fA-F]{2,5});")
_ESCAPED = re.compile(r"(?:\\n){2}|[.!?]\\n")


def _unfenced(text: str) -> str:
    return _FENCE.sub(r"\1", text)


def _without_html(text: str) -> str:
    text = _ENTITY.sub(lambda found: html.unescape(found[0]), text)
    if _ESCAPED.search(text):
        text = text.replace("\\n", "\n").replace('\\"', '"')
    return _INLINE.sub("", _BLOCKS.sub("\n", text))
