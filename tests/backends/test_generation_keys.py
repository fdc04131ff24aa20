"""The keys of generation_config.json, and models without a chat template."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from glit.errors import RecipeError, WeightsError
from glit.models.backends.captioners import CAPTIONERS, LANGUAGE_MODELS
from glit.models.backends.captioners.generation_keys import sampling_keys
from glit.models.weights import Resolved
from glit.recipes.resources import mini_model
from glit.stages.caption import CaptionConfig

GREY = np.full((64, 64, 3), 128, np.uint8)


@pytest.fixture
def copy(tmp_path):
    """Makes copies of the mini captioner whose generation_config.json has further keys."""

    def make(**keys):
        folder = tmp_path / "captioner"
        shutil.copytree(mini_model("captioner"), folder)
        path = folder / "generation_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))
        return Resolved(name="copy", path=folder, revision="r", sha256="s")

    return make


def check(backend, model):
    CAPTIONERS[backend].check(CaptionConfig(backend=backend, device="cpu"), model)


def test_the_models_own_penalty_is_followed_by_both(copy):
    model = copy(repetition_penalty=4.0, top_p=0.8, top_k=20, temperature=0.7, do_sample=True)
    config = CaptionConfig(max_tokens=40, device="cpu")
    check("transformers", model)
    found = {"repetition_penalty": 4.0, "top_p": 0.8, "top_k": 20}
    assert sampling_keys(config, model) == found
    made = CAPTIONERS["transformers"].make(config, model, "Describe it.")
    [penalised] = made.caption([GREY], seeds=[0], temperature=0.0)
    words = penalised.text.lower().split()
    asked = CaptionConfig(max_tokens=40, device="cpu", repetition_penalty=1.0)
    made._sampling = {"repetition_penalty": asked.repetition_penalty}
    [plain] = made.caption([GREY], seeds=[0], temperature=0.0)
    assert plain.text != penalised.text and len(set(words)) > len(words) / 2


def test_the_recipe_goes_before_the_model(copy):
    model = copy(repetition_penalty=4.0, top_p=0.8)
    config = CaptionConfig(repetition_penalty=1.0, top_k=0)
    assert sampling_keys(config, model) == {"repetition_penalty": 1.0, "top_p": 0.8, "top_k": 0}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_beams", 4),
        ("no_repeat_ngram_size", 3),
        ("bad_words_ids", [[3]]),
        ("forced_eos_token_id", 1),
        ("suppress_tokens", [4]),
        ("length_penalty", 0.6),
        ("penalty_alpha", 0.6),
        ("guidance_scale", 1.5),
        ("min_length", 10),
        ("a_key_of_tomorrow", 1),
    ],
)
@pytest.mark.parametrize("backend", ["transformers", "vllm"])
def test_keys_that_are_not_followed_are_refused_by_name(copy, backend, key, value):
    with pytest.raises(WeightsError, match=f"generation_config.json has {key} = .*take the key"):
        check(backend, copy(**{key: value}))


def test_keys_that_do_nothing_are_no_obstacle(copy):
    keys = {"num_beams": 1, "no_repeat_ngram_size": 0, "length_penalty": 1.0, "max_length": 20,
            "bad_words_ids": None, "early_stopping": False, "image_token_id": 5}  # fmt: skip
    check("transformers", copy(**keys))


def test_a_damaged_file_and_a_value_of_another_type_are_one_line(copy):
    model = copy(repetition_penalty="4")
    with pytest.raises(WeightsError, match='repetition_penalty = "4", which glit'):
        check("vllm", model)
    (model.path / "generation_config.json").write_text("{")
    with pytest.raises(WeightsError, match="cannot be read"):
        check("transformers", model)


@pytest.mark.parametrize("value", [0.0, -2.0, float("nan"), float("inf")])
def test_penalties_that_are_none_are_refused(value):
    with pytest.raises(RecipeError, match="repetition_penalty"):
        CaptionConfig(repetition_penalty=value)


@pytest.mark.parametrize("backend", ["transformers", "vllm"])
def test_a_model_without_a_chat_template_is_refused_before_the_first_image(copy, backend):
    model = copy()
    (model.path / "chat_template.jinja").unlink()
    with pytest.raises(WeightsError, match="has no chat template.*chat_template.jinja"):
        check(backend, model)
    if backend == "vllm":
        with pytest.raises(WeightsError, match="has no chat template"):
            LANGUAGE_MODELS["vllm"].check(CaptionConfig(backend="vllm", device="cpu"), model)


def test_a_template_that_takes_no_image_is_one_line(copy):
    model = copy()
    (model.path / "chat_template.jinja").write_text("{{ raise_exception('texts only') }}")
    with pytest.raises(WeightsError, match="makes no prompt of an image and a text .texts only"):
        CAPTIONERS["transformers"].make(CaptionConfig(device="cpu"), model, "Describe it.")
