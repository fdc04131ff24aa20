"""The commands of docs/papers.md, in order, on small files in the published layouts."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from annotations import as_json, fg_ovd, lines, noise
from building import json_lines, tiny_clip
from PIL import Image

from glit.pipeline.planning.recipe import load_recipe
from glit.scenes import write_scenes

PAGE = Path(__file__).parents[1] / "docs" / "papers.md"
LONG = "A dog sits on a mat. A cat sleeps beside it."
IMAGES = [f"{split}_{number}.jpg" for split in ("train", "test", "qual_test") for number in (1, 2)]
PUBLISHED = ("clip-vit-l-14", "longclip-b", "longclip-l", "openai/clip-vit-base-patch16")
"""Weights: a small random CLIP stands for them."""
INSTEAD = {"negatives.backend=vllm": "negatives.backend=rules"}
SMALL = {
    "vllm": ("caption.backend=transformers", "caption.model=mini-captioner"),
    "yolos": ("propose.model=mini-proposer",),
    "yolos+grid": ("propose.model=mini-proposer",),
    "sam": ("propose.model=mini-segmenter",),
}
"""Settings by backend: what runs on a CPU, without a model hub."""


def commands() -> list[list[str]]:
    """All but those that say how many images are in a gallery; see evaluation/test_galleries.py."""
    blocks = PAGE.read_text(encoding="utf-8").split("```sh\n")[1:]
    told = [line for block in blocks for line in block.split("```")[0].splitlines()]
    return [shlex.split(line)[1:] for line in told if line.startswith("glit ") and "#" not in line]


def layouts(folder: Path) -> None:
    """A few images of each collection, in the layout in which it is published."""
    coco = "ShareGPT4V/coco/train2017/{}.jpg"
    write_scenes(folder / "scenes", num=2, seed=1)
    (folder / "scenes" / "images").rename(folder / "sa-1b")
    for number in (1, 2):
        for place in (coco, "cc3m-images/{}.jpg", "Urban1k/image/{}.jpg", "joint/{}.jpg"):
            noise(folder / place.format(number), number)
        noise(folder / "joint" / f"{number}.jpg_results" / f"{number}_max_0.png", number)
        photo = folder / "densely_captioned_images" / "photos" / f"sa_{number}.jpg"
        photo.parent.mkdir(parents=True, exist_ok=True)
        Image.open(folder / "sa-1b" / f"{number - 1:06d}.png").save(photo)
        noise(folder / "cifar10" / f"class {number}" / "1.png", number)
        (folder / "Urban1k" / "caption").mkdir(exist_ok=True)
        (folder / "Urban1k" / "caption" / f"{number}.txt").write_text(LONG)
    for number, name in enumerate(IMAGES):
        noise(folder / "images" / name, number)
    docci = [
        {"split": name.rsplit("_", 1)[0], "image_file": name, "description": LONG}
        for name in IMAGES
    ]
    lines(folder / "docci_descriptions.jsonlines", docci)
    names = [f"../DCI/dataset/photos/sa_{number}.jpg" for number in (1, 2)]
    lists = folder / "GOAL" / "datasets"
    as_json(
        lists / "DCI_train_del_org.json", [{"filename": name, "caption": LONG} for name in names]
    )
    joint = [{"filename": f"{number}.jpg", "caption": LONG} for number in (1, 2)] + [
        {"filename": f"{n}.jpg_results/{n}_max_0.png", "caption": "A dog sits on a mat."}
        for n in (1, 2)
    ]
    as_json(lists / "DCI_test_joint_sim_max_11.json", joint)
    turns = [{"from": "human", "value": "?"}, {"from": "gpt", "value": LONG}]
    talks = [
        {"id": str(n), "image": f"coco/train2017/{n}.jpg", "conversations": turns} for n in (1, 2)
    ]
    as_json(folder / "share-captioner_coco_lcs_sam_1246k_1107.json", talks)
    lines(folder / "cc3m-recap.jsonl", [{"path": f"{n}.jpg", "caption": LONG} for n in (1, 2)])
    fg_ovd(folder / "FG-OVD" / "benchmarks")
    (folder / "FG-OVD" / "benchmarks" / "val2017").rename(folder / "val2017")
    (folder / "coco2017").mkdir()
    (folder / "val2017").rename(folder / "coco2017" / "val2017")
    shutil.copytree(tiny_clip(), folder / "MODEL")
    (folder / "figure-4.txt").write_text("Describe the image.")


def in_small(words: list[str]) -> list[str]:
    """The same command with models, batches and epochs for two images on a CPU."""
    made = [INSTEAD.get(word, word) for word in words]
    made = [
        re.sub(rf"^(train.model=)?({'|'.join(PUBLISHED)})$", rf"\1{tiny_clip()}", w) for w in made
    ]
    recipe = words[words.index("-r") + 1] if "-r" in words else None
    settings: list[str] = []
    if words[0] == "build":
        asked = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
        if "--captions" in words:
            asked.append("caption.backend=provided")
        stages = load_recipe(recipe, overrides=asked).tables
        for name in ("caption", "propose"):
            if name in stages and getattr(stages[name], "enabled", True):
                settings += SMALL.get(stages[name].backend, ())
        if stages["propose"].enabled:
            settings.append(f"score.model={tiny_clip()}")
        made += ["--executor", "local"]
    if words[0] == "train":
        settings = ["train.epochs=1", "train.batch_size=2", "train.num_workers=0"]
        if not any(word.startswith("train.model=") for word in words):
            settings.append(f"train.model={tiny_clip()}")
    return [*made, *(part for each in settings for part in ("--set", each))]


@pytest.mark.slow
def test_every_command_runs(tmp_path, monkeypatch, run_glit):
    layouts(tmp_path)
    monkeypatch.chdir(tmp_path)
    for words in commands():
        if words[0] == "bench":  # with models of billions of numbers; see tests/bench
            continue
        done = run_glit(*in_small(words))
        assert done.code == 0, (words, done.errors)
        if words[0] == "import":
            output = tmp_path / words[words.index("-o") + 1]
            rows = json_lines(output)
            assert rows and all((output.parent / row["path"]).is_file() for row in rows)
