"""Captioners of 2026, small and random: they load, speak, and are told not to think."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import tiny_captioners
from PIL import Image
from tiny_captioners import KINDS, captioner, images

from glit.models.weights import resolve
from glit.pipeline.planning.recipe import load_recipe
from glit.stages.caption import CaptionStage
from glit.text.structured import caption_in_json

if TYPE_CHECKING:
    from glit.stages.plan import Plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_captioners.made(tmp_path_factory.mktemp("captioners"))


@pytest.fixture(scope="module")
def said(folder):
    """By transformers."""
    return {
        name: captioner(folder / name, "transformers").caption(
            images(), seeds=[0] * 3, temperature=0.0
        )
        for name in KINDS
    }


@pytest.mark.parametrize("name", KINDS)
def test_each_speaks_of_an_image_as_it_would_alone(folder, said, name):
    model = captioner(folder / name, "transformers")
    for image, answer in zip(images(), said[name], strict=True):
        assert model.caption([image], seeds=[0], temperature=0.0) == [answer]
        assert answer.cut and answer.text


@pytest.mark.parametrize("adds", [True, False])
def test_a_start_token_is_written_once_as_by_transformers(folder, adds, tmp_path):
    """The template of ``gemma4`` writes one; the tokenizer may put another before every text."""
    if adds:
        shutil.copytree(folder / "gemma4", tmp_path, dirs_exist_ok=True)
        tiny_captioners.add_start(tmp_path, "<bos>")
    model = captioner(tmp_path if adds else folder / "gemma4", "transformers")
    picture = {"type": "image", "image": Image.fromarray(images()[0])}
    content = [picture, {"type": "text", "text": tiny_captioners.PROMPT}]
    wanted = model._processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=True,
        return_dict=True, return_tensors="pt",
    )["input_ids"][0].tolist()  # fmt: skip
    found = model.prepare(images()[0])["input_ids"][0].tolist()
    start = model._processor.tokenizer.convert_tokens_to_ids("<bos>")
    assert (found, found.count(start)) == (wanted, 1)


def test_the_template_is_asked_not_to_think(folder):
    text = captioner(folder / "qwen3_vl", "transformers")._text
    assert text.endswith("<think>\n\n</think>\n\n")


def test_a_model_that_enlarges_images_is_kept_from_it(folder):
    """A picture of 60 pixels becomes one of 128 in 17 tiles, or one of 64 in 5."""
    tiles = {}
    for side in (0, 16, 64, 500):
        model = captioner(folder / "idefics3", "transformers", max_image_side=side)
        tiles[side] = model.prepare(images()[0])["pixel_values"].shape[1]
    assert tiles == {0: 13, 16: 1, 64: 5, 500: 13}


@pytest.mark.parametrize(
    ("name", "side", "told"),
    [("idefics3", 64, 64), ("idefics3", 500, None), ("qwen3_vl", 64, None)],
)
def test_captions_of_other_tiles_are_others_in_the_work_folder(folder, name, side, told):
    plan = SimpleNamespace(
        models={"captioner": resolve(str(folder / name))}, prompt="", further_prompts=(),
        recipe=load_recipe("laptop", overrides=[f"caption.max_image_side={side}"]),
    )  # fmt: skip
    size = CaptionStage.identity(cast("Plan", plan)).get("size")
    assert size == (told and {"longest_edge": told})


@pytest.mark.engine
def test_vllm_says_what_transformers_says(folder, said, tmp_path, forks_with_vllm):
    found = tmp_path / "said.json"
    forks_with_vllm.run("tiny", [folder, found], tmp_path / "output")
    theirs = json.loads(found.read_text())
    structured, again, of_two_keys, plain = theirs.pop("structured")
    assert caption_in_json(structured) and again == structured  # with the image from the cache
    assert of_two_keys.startswith('{"a": "')
    assert plain.startswith(theirs["qwen3_vl"][0][0].rstrip("\ufffd"))
    texts = tiny_captioners.texts_by_transformers(folder / "qwen3")
    assert texts != tiny_captioners.texts_by_transformers(folder / "qwen3", repetition_penalty=1.0)
    whole = [text.rstrip("\ufffd") for text in texts]  # vLLM leaves half a character out
    assert [text.rstrip("\ufffd") for text in theirs.pop("qwen3")] == whole and any(whole)
    for name in KINDS:
        for answer, (text, logprobs) in zip(said[name], theirs[name], strict=True):
            assert text[:2] == answer.text[:2]
            if answer.tokens:  # not where the last character is cut
                own = [token.logprob for token in answer.tokens]
                assert own[0] == pytest.approx(logprobs[0], abs=0.05)
