"""The galleries of docs/papers.md: every command there opens its annotations, in small."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image

from glit.cli.main import app
from glit.evaluation.collection import JointCollection, open_collection
from glit.evaluation.config import EvaluateConfig
from glit.inputs.published import measured
from glit.pipeline.planning.recipe import load_table

PAGE = Path(__file__).parents[2] / "docs" / "papers.md"
COMMAND = re.compile(r"^glit eval (\S+) (.*--format .*?)  # (\d+) images, (\d+) captions$", re.M)

COMMANDS = COMMAND.findall(PAGE.read_text(encoding="utf-8"))
IN_SMALL = [
    *[(3, 3), (2, 2)],  # DOCCI
    *[(2, 2), (2, 2), (3, 3)],  # DCI
    *[(2, 2), (2, 2), (2, 2), (2, 2)],  # Urban1k, ShareGPT4V
    *[(3, 3), (1, 1)],  # ImageInWords
    *[(1, 2), (1, 2), (1, 2), (2, 3)],  # COCO, Flickr30k
    (2, 3),  # HiMo-Docci
    (2, 2),  # the joint set
]
"""Images and captions of the small galleries, in the order of the page."""


def touch(*paths: str) -> None:
    for path in map(Path, paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 7), (len(path.name), 90, 40)).save(path)


def write(path: str, *values: Any) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    Path(path).write_text("\n".join(texts) + "\n")


@pytest.fixture()
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files the page names, each with a few entries, in the current folder."""
    monkeypatch.chdir(tmp_path)
    parts = ["train", "test", "test", "qual_test", "qual_dev"]
    touch(*(f"images/{part}_{i}.jpg" for i, part in enumerate(parts)))
    write(
        "docci_descriptions.jsonlines",
        *(
            {"split": part, "image_file": f"{part}_{i}.jpg", "description": f"Description {i}."}
            for i, part in enumerate(parts)
        ),
    )

    root = "densely_captioned_images"
    for i in range(3):
        touch(f"{root}/photos/sa_{i}.jpg")
        extra = f"Long {i}." if i else ""
        values = {"image": f"sa_{i}.jpg", "short_caption": f"Short {i}.", "extra_caption": extra}
        write(f"{root}/annotations/{i}-data.json", values)
    names = [f"{i}-data.json" for i in range(3)]
    write(f"{root}/splits.json", {"train": names[:1], "valid": names[1:2], "test": names[2:]})

    photos = "../DCI/dataset/densely_captioned_images/photos"
    wholes = [
        {"filename": f"{photos}/sa_{i}.jpg", "caption": f"Long {i}. Red {i}."} for i in (1, 2)
    ]
    write("GOAL/datasets/DCI_test.json", wholes)
    segments = [
        {"filename": f"../x/sa_{i}.jpg_results/{name}", "caption": f"Red {i}"}
        for i, name in ((2, "sa_2_max_1.png"), (1, "original_image.jpg"))
    ]
    write("GOAL/datasets/DCI_test_joint_sim_max_11.json", wholes + segments)
    touch("joint/photos/sa_1.jpg", "joint/photos/sa_2.jpg", "joint/sa_2.jpg_results/sa_2_max_1.png")

    touch("Urban1k/image/1.jpg", "Urban1k/image/2.jpg", "ShareGPT4V/sam/images/sa_1.jpg")
    touch("ShareGPT4V/coco/train2017/000000000009.jpg")
    write("Urban1k/caption/1.txt", "Caption 1.")
    write("Urban1k/caption/2.txt", "Caption 2.")
    names = ["sam/images/sa_1.jpg", "coco/train2017/000000000009.jpg"]
    turns = [{"from": "human", "value": "?"}, {"from": "gpt", "value": "An answer."}]
    write(
        "share-captioner_coco_lcs_sam_1246k_1107.json",
        [{"id": "1", "image": name, "conversations": turns} for name in names],
    )
    listed = [{"filename": f"/data/{name}", "caption": f"Of {name}."} for name in names]
    write("GOAL/datasets/sharegpt4v_test.json", listed)

    touch("IIW/docci/test_00731.jpg", "IIW/docci_aar/aar_test_04600.jpg", "IIW/dci/sa_15.jpg")
    for part, row in {
        "IIW-400": {"image/key": "aar_test_04600", "IIW": "Of AAR."},
        "DCI_Test": {"image": "sa_15.jpg", "ex_id": "113029-data.json", "IIW": "Of DCI."},
        "DOCCI_Test": {"image": "test_00731", "DOCCI": "Older.", "IIW": "Of DOCCI."},
    }.items():
        write(f"imageinwords/datasets/{part}/data.jsonl", row)

    write(
        "himo_docci_data.json",
        {"img_path": "test_1.jpg", "caption": ["One.", "One. Two."]},
        {"img_path": "test_2.jpg", "caption": ["One."]},
    )

    raw = [{"raw": "One."}, {"raw": "Two."}]
    karpathy = [
        {"filename": f"{i}.jpg", "filepath": "val2014", "split": part, "sentences": raw}
        for i, part in enumerate(["restval", "test"])
    ]
    write("dataset_coco.json", {"images": karpathy, "dataset": "coco"})
    for entry in karpathy:
        del entry["filepath"]
    write("dataset_flickr30k.json", {"images": karpathy[1:], "dataset": "flickr30k"})
    captions = [{"image_id": 7, "id": i, "caption": f"{i}"} for i in range(2)]
    annotated = {"images": [{"id": 7, "file_name": "007.jpg"}], "annotations": captions}
    write("captions_val2017.json", annotated)
    write("results_20130124.token", "1.jpg#0\tA dog .", "1.jpg#1\tTwo .", "2.jpg#0\tA cat .")
    touch("COCO/val2014/1.jpg", "COCO/val2017/007.jpg", "flickr30k-images/1.jpg")
    touch("flickr30k-images/2.jpg")


def test_the_page_gives_every_format_with_a_size() -> None:
    formats = {re.findall(r"--format (\S+)", words)[0] for _, words, _, _ in COMMANDS}
    assert formats == set(measured())
    assert len(re.findall(r"^glit eval \S+ MODEL .*--format", PAGE.read_text(), re.M)) == len(
        COMMANDS
    )


@pytest.mark.parametrize(("command", "counted"), list(zip(COMMANDS, IN_SMALL, strict=True)))
def test_the_commands_of_the_page(
    command: tuple[str, ...], counted: tuple[int, int], published: None
) -> None:
    task, words = command[:2]
    group: Any = typer.main.get_command(app)
    given = group.commands["eval"].make_context("eval", [task, *shlex.split(words)]).params
    collection = open_collection(
        given["dataset"],
        load_table(EvaluateConfig, "mini", overrides=given["settings"]),
        kind=given["format"],
        images=given["images"] and Path(given["images"]),
        split=given.get("split"),
    )
    assert (len(collection.captions), sum(map(len, collection.captions))) == counted
    assert isinstance(collection, JointCollection) == (task == "joint-map")


def test_a_measurement_says_on_how_much(tiny_clip: Path, published: None, run_glit) -> None:
    def run(*words: str) -> str:
        done = run_glit("eval", *words)
        assert done.code == 0, done.errors
        return done.output

    docci = ["docci_descriptions.jsonlines", "--format", "docci", "--split", "test+qual_test"]
    printed = run("retrieval", str(tiny_clip), *docci)
    assert "retrieval on docci test+qual_test: 3 images, 3 captions\n" in printed
    joint = ["GOAL/datasets/DCI_test_joint_sim_max_11.json", "--format", "goal-joint"]
    (result,) = json.loads(run("joint-map", str(tiny_clip), *joint, "--images", "joint", "--json"))
    assert (result["num_images"], result["num_captions"]) == (2, 2)
    assert (result["metrics"]["pairs"], result["metrics"]["distinct_texts"]) == (2, 4)
