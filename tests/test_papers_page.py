"""The commands of docs/papers.md: imports read the published layouts, builds use what was made."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from annotations import lines
from building import json_lines, png

from glit.recipes.resources import builtin_recipes

PAGE = Path(__file__).parents[1] / "docs" / "papers.md"


def commands() -> list[list[str]]:
    blocks = PAGE.read_text(encoding="utf-8").split("```sh\n")[1:]
    told = [line for block in blocks for line in block.split("```")[0].splitlines()]
    return [shlex.split(line)[1:] for line in told if line.startswith("glit ")]


def layouts(folder: Path) -> None:
    """Two images of each collection, in the layout in which it is published."""
    long = "A dog sits on a mat. A cat sleeps beside it."
    pictures = {
        "images": ["train_1.jpg", "test_1.jpg", "qual_test_1.jpg"],
        "densely_captioned_images/photos": ["sa_1.jpg"],
        "ShareGPT4V/coco/train2017": ["000000000009.jpg"],
    }
    for place, names in pictures.items():
        (folder / place).mkdir(parents=True)
        for number, name in enumerate(names):
            (folder / place / name).write_bytes(png(seed=number))
    lines(
        folder / "docci_descriptions.jsonlines",
        [
            {"split": name.rsplit("_", 1)[0], "image_file": name, "description": long}
            for name in pictures["images"]
        ],
    )
    (folder / "GOAL" / "datasets").mkdir(parents=True)
    entry = {"filename": "../DCI/dataset/photos/sa_1.jpg", "caption": long}
    (folder / "GOAL" / "datasets" / "DCI_train_del_org.json").write_text(json.dumps([entry]))
    turns = [{"from": "human", "value": "?"}, {"from": "gpt", "value": long}]
    talk = {"id": "9", "image": "coco/train2017/000000000009.jpg", "conversations": turns}
    name = "share-captioner_coco_lcs_sam_1246k_1107.json"
    (folder / name).write_text(json.dumps([talk]))


def test_every_import_reads_the_published_layout(tmp_path, monkeypatch, run_glit):
    layouts(tmp_path)
    monkeypatch.chdir(tmp_path)
    imports = [words for words in commands() if words[0] == "import"]
    assert len(imports) == 4  # DOCCI's two parts, DCI, ShareGPT4V
    for words in imports:
        done = run_glit(*words, "--quiet")
        assert done.code == 0, done
        output = tmp_path / words[words.index("-o") + 1]
        rows = json_lines(output)
        assert rows and all((output.parent / row["path"]).is_file() for row in rows)


def test_every_name_that_a_command_uses_was_made_before():
    """Datasets and runs that a build, a training or a measurement takes."""
    made = {"images", "sa-1b", "ShareGPT4V", "densely_captioned_images/photos", "cc3m", "cifar10"}
    for words in commands():
        verb = words[0]
        if verb in ("build", "train"):
            assert words[1] in made, words
            recipe = words[words.index("-r") + 1]
            assert recipe in builtin_recipes() or verb == "train", words
        if verb == "eval" and words[1] in ("localize", "caption-quality"):
            assert words[3] in made, words
        for option in ("--captions", "--false-sentences"):
            if option in words and "recap" not in words[words.index(option) + 1]:
                assert words[words.index(option) + 1] in made, words
        if "-o" in words:
            made.add(words[words.index("-o") + 1])
