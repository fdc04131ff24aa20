"""Short captions that are first sentences: for captions of any source, without a model."""

from __future__ import annotations

import json

import pytest
from building import quiet, run_build, with_captions_beside

from glit.data.captions import with_short
from glit.data.records import Caption, Sample
from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import RecipeError, UserError
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.planning.recipe import load_recipe
from glit.pipeline.retry import retry
from glit.text.sentences import make_splitter

SHORT = "caption.short=first_sentence"


def sample(text: str, **extra) -> Sample:
    caption = Caption(text=text, kind="vllm", model="m", revision="", prompt_sha256="")
    return Sample(
        sample_id="0", source_path="a.png", width=1, height=1, num_bytes=1, caption=caption,
        extra=extra,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("A red house. It has a door.", "A red house."),
        ("One sentence only", "One sentence only"),
        ("... A dog sleeps. It is old.", "A dog sleeps."),
    ],
)
def test_the_first_sentence_with_words(text, short):
    made = with_short(sample(text), make_splitter("sentencex", "en"))
    long, added = made.extra["captions"]
    assert long == {"kind": "long", "text": text, "source": "vllm"}
    assert added["text"].endswith(short) and added["text"].count(".") <= 4
    assert (added["kind"], added["source"]) == ("short", "first_sentence")


def test_a_short_caption_that_is_there_stays():
    own = [{"kind": "short", "text": "Mine.", "source": "provided"}]
    made = with_short(sample("A. B.", captions=own), make_splitter("sentencex", "en"))
    assert made.extra["captions"] == own


@pytest.mark.parametrize("backend", ["provided", "sidecar", "transformers"])
def test_of_captions_of_every_source(scenes, tmp_path, backend):
    images, words = scenes / "images", {"limit": 3}
    if backend == "provided":
        words["captions"] = scenes / "captions.jsonl"
    if backend == "sidecar":
        images = with_captions_beside(scenes, tmp_path / "beside", 3)
    settings = [f"caption.backend={backend}", SHORT]
    out = tmp_path / "out"
    run_build(images, out, recipe="mini", overrides=[*settings, "propose.enabled=false"], **words)
    assert list(verify(str(out))) == []
    for row in Dataset(out):
        assert [(each["kind"], each["source"]) for each in row.extra["captions"]] == [
            ("long", "transformers" if backend == "transformers" else "provided"),
            ("short", "first_sentence"),
        ]
        assert row.extra["captions"][1]["text"] == row.sentences[0].text


def test_of_images_of_which_some_bring_one(scenes, tmp_path):
    lines = [json.loads(line) for line in (scenes / "captions.jsonl").read_text().splitlines()]
    lines[0]["short_caption"] = "Mine."
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    run_build(
        scenes / "images", tmp_path / "out", captions=tmp_path / "captions.jsonl", limit=2,
        recipe="captions-only", overrides=[SHORT],
    )  # fmt: skip
    rows = [row.extra["captions"] for row in Dataset(tmp_path / "out")]
    sources = [[each["source"] for each in captions] for captions in rows]
    assert sources == [["provided", "provided"], ["provided", "first_sentence"]]
    with pytest.raises(UserError, match=r"caption\.short: it decides which columns"):
        retry(str(tmp_path / "out"), LocalExecutor(), quiet(), settings=["caption.short="])


def test_a_model_that_writes_short_ones_needs_none():
    with pytest.raises(RecipeError, match="writes a short caption of every image"):
        load_recipe("mini", overrides=['caption.kinds=["long","short"]', SHORT])
