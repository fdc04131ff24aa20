"""What answers of models carry beside the caption."""

from __future__ import annotations

import pytest

from glit.text.answers import clean_answer, control_tokens
from glit.text.faults import caption_fault, repeats_marks, says_unseen
from glit.text.structured import caption_in_json, plain_answer, texts_in_json

TEXT = "A red ball lies on a green field. A blue box stands on the left."


@pytest.mark.parametrize(
    "answer",
    [
        "<think>A ball?</think>{}", "<THINKING>A ball?</THINKING>\n{}", "A ball?</think>\n\n{}",
        "[THINK]A ball?[/THINK]{}", "◁think▷A ball?◁/think▷{}", "<reasoning>Hm</reasoning>\n{}",
        "<|channel>thought\nA ball?<channel|>{}", "<seed:think>A ball?</seed:think>{}",
        "<|START_THINKING|>Hm<|END_THINKING|><|START_RESPONSE|>{}<|END_RESPONSE|>",
        "<|begin_of_thought|>Hm<|end_of_thought|><|begin_of_solution|>{}<|end_of_solution|>",
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>{}",
        "analysisThe user wants a ball.assistantfinal{}", "{}<think>Is that all?</think>",
        "<think>Hm<think>A ball?</think>So</think>{}", "<think>A</think><answer>{}</answer>",
        "<answer>{}", "<SUMMARY>Hm</SUMMARY><CAPTION>{}</CAPTION><CONCLUSION>A ball.</CONCLUSION>",
    ],
)  # fmt: skip
def test_thoughts_of_every_family_are_cut(answer) -> None:
    found = clean_answer(answer.format(TEXT))
    assert (found.text, found.cut, found.lost) == (TEXT, ("thoughts",), "")


@pytest.mark.parametrize("thought", ["<think>A ball", "◁think▷A", "analysisThe user", "Hm</think>"])
def test_of_a_thought_alone_nothing_is_left(thought) -> None:
    assert clean_answer(thought).text == ""


@pytest.mark.parametrize(
    "answer",
    [
        "{}</s>", "{}<|im_end|>", "{}<|eot_id|>", "{}<end_of_utterance>", "{}<end_of_turn>\n",
        "{}<｜end▁of▁sentence｜>", "{}\nUSER: Which?\nASSISTANT: Blue.", "{} USER: Which?",
        "{}<|im_end|>\n<|im_start|>user\nMore?<|im_end|>", "{}\nuser\nMore?\nassistant\nNo.",
        "{}\n### Human: More?", "{}\nHuman: More?\nAssistant: No.", "assistant\n{}",
        "ASSISTANT: {}", "**Assistant:** {}", "[/INST] {}", "<s>[INST] Describe it. [/INST] {}</s>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n{}<|eot_id|>", "<|assistant|>\n{}",
        "<start_of_turn>model\n{}<end_of_turn>", "<|turn>model\n{}<turn|>",
        "USER: Describe it.\nASSISTANT: {}", "Describe this image in detail. {}", "Say it: {}",
    ],
)  # fmt: skip
def test_one_turn_is_kept_without_its_role(answer) -> None:
    assert clean_answer(answer.format(TEXT), prompt="Say it:").text == TEXT


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("<image>" * 9 + TEXT + "<|image_pad|>" * 9, TEXT),
        ("<|begin_of_box|>" + TEXT + "<|end_of_box|>", TEXT),
        ("A <ref>ball</ref><box>(1,2),(3,4)</box> lies.", "A ball lies."),
        ("A ball <loc0256><loc0128> lies.", "A ball lies."),
        ('A <point x="63.5" alt="ball">ball</point> lies.', "A ball lies."),
        ("A\x00 ball\x1b[31m lies\x1b]0;own\x07.", "A ball lies."),
        ("A caf<0xC3><0xA9> stands.", "A café stands."),
        ("A\u0120cafÃ©\u0120stands.\u010aIt\u0120rains.", "A café stands.\nIt rains."),
        ("\u2581A\u2581ball\u2581lies.", "A ball lies."), ("A play ##ing dog.", "A playing dog."),
        ("A</w> dog</w> runs</w>.", "A dog runs."), ("A small@@ ish dog.", "A smallish dog."),
        ("It\u00e2\u0080\u0099s a cafÃ©.", "It’s a café."), ("Itâ€™s old.", "It’s old."),
        ("```\nA ball lies.\n```", "A ball lies."), ("addCriterion\nA ball lies.", "A ball lies."),
        ("<p>A <b>ball</b> &amp; a box.</p>", "A ball & a box."), ("<unk> A dog.", "A dog."),
        ("A dog.\\n\\nIt says \\\"Go\\\".", 'A dog.\n\nIt says "Go".'), ("A dog. A ca\ufffd", "A dog. A ca"),
    ],
)  # fmt: skip
def test_tokens_and_marks_are_cut_or_read(answer, text) -> None:
    found = clean_answer(answer)
    assert (found.text.strip(), found.lost) == (text, "")
    assert found.cut


@pytest.mark.parametrize(
    "lost", ["<unk>", "[unused0]", "<|reserved_special_token_7|>", "[MASK]", "\ufffd", "<0xC3>"]
)
def test_what_stands_for_a_word_is_lost(lost) -> None:
    assert clean_answer(f"A {lost} ball lies.").lost in (lost, "\ufffd")


@pytest.mark.parametrize(
    "fine",
    ["Ġgantija temples and Ċentru stand in Malta.", "«CAFÉ» and MAÇÃ».", "5 < 6 > 4 and a <3.",
     "A model: assistants of a user.", "- User: admin\n- Code: 7", "It reads:\nUser: admin\nHi.",
     "analysis of a chart.", "A # 1 and ## 2, C:\\new, a@b.", "The answer is [A] | [B].",
     "  two  blanks  ", "A hashtag #dog.\n\nA plan: an image."],
)  # fmt: skip
def test_what_only_looks_so_is_kept(fine) -> None:
    found = clean_answer(fine)
    assert (found.text, found.cut, found.lost) == (fine, (), "")


def test_a_prompt_that_begins_the_caption_stays() -> None:
    assert clean_answer("A photo of a dog.", prompt="A photo of").text == "A photo of a dog."


class Tokenizer:
    all_special_tokens = ("<|own|>", "!", "[gMASK]")

    def get_added_vocab(self):
        return {"<tool>": 1, "  ": 2, "word": 3, "◁own▷": 4}


def test_tokens_of_the_own_tokenizer_come_first() -> None:
    tokens = control_tokens(Tokenizer())
    assert {*tokens} == {"<|own|>", "[gMASK]", "<tool>", "◁own▷"}
    assert clean_answer("A dog!<tool> ◁own▷", tokens=tokens).text.strip() == "A dog!"


def test_structured_answers_come_out_of_fences_and_remarks() -> None:
    for answer in ('{{"caption": "{}"}}', '```json\n{{"caption": "{}</s>"}}\n```',
                   'Sure! [{{"caption": "{}"}}]'):  # fmt: skip
        for structured in (True, answer.startswith("Sure")):
            found = plain_answer(answer.format(TEXT), structured=structured)
            assert found is not None and found.text == TEXT
    assert plain_answer('[{"bbox_2d": [1, 2], "label": "ball"}]', structured=False) is None
    assert plain_answer("A dog.", structured=True) is None
    assert caption_in_json('```json\n{"caption": "A dog. A ca') == "A dog. A ca"
    said = '```json\n{"a": "A dog.<|im_end|>", "b": "A <unk> dog."}\n```'
    assert texts_in_json(said) == {"a": "A dog."}


def test_marks_and_blanks_without_end_are_loops() -> None:
    for tail in ("! " * 20, "." * 40, "\n" + "-" * 40, "\n" * 30):
        assert caption_fault(TEXT + tail) == "looping"
    assert not repeats_marks("A menu: soup ........ 3\n---\nOh!!!")


@pytest.mark.parametrize(
    "said",
    ["I don't see any image attached. Could you upload it?", "No image was provided.",
     "It seems the image did not load.", "Without seeing the picture, I would describe a scene.",
     "You gave base64, which I cannot decode, here is a guess.", "I'm unable to view the photo.",
     "There is no image attached.", "I am a text-based model."],
)  # fmt: skip
def test_no_image_was_seen_is_a_refusal(said) -> None:
    assert says_unseen(said) and caption_fault(said) == "refusal"
    assert not says_unseen(f"A sign: “{said}” on a wall.")


def test_pictures_in_pictures_are_no_refusal() -> None:
    for fine in ("No picture hangs on the wall.", "A photo is not displayed on the desk.",
                 "The image shows a man who cannot see.", "A frame that holds no picture is here."):  # fmt: skip
        assert caption_fault(fine) is None
