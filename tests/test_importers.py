"""Published captions become a file that a build takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from annotations import conversations, lines, touch
from building import json_lines, run_build

from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.exporters import export
from glit.inputs.importers import import_captions
from glit.inputs.published import imported


def written(tmp_path: Path, name: str, source: Path, **options) -> dict[str, str]:
    """What the file says, by absolute path."""
    output = tmp_path / "made" / "captions.jsonl"
    found = import_captions(name, source, output, **{"images": None, **options})
    rows = json_lines(output)
    assert len({row["path"] for row in rows}) == found.captions
    texts: dict[str, str] = {}
    for row in rows:
        said = f"{row['kind']}: {row['caption']}" if found.kinds else row["caption"]
        path = str((output.parent / row["path"]).resolve())
        texts[path] = f"{texts[path]} | {said}" if path in texts else said
    assert tuple(dict.fromkeys(row["kind"] for row in rows if "kind" in row)) == found.kinds
    return texts


def docci(root: Path) -> Path:
    rows = [
        {"split": split, "image_file": f"{split}.jpg", "description": f"Of {split}."}
        for split in ("train", "test", "qual_dev")
    ]
    for row in rows:
        touch(root / "images" / row["image_file"])
    return lines(root / "docci_descriptions.jsonlines", rows)


def test_every_part_unless_one_is_asked_for(tmp_path):
    source = docci(tmp_path)
    folder = tmp_path / "images"
    assert written(tmp_path, "docci", source) == {
        str(folder / f"{split}.jpg"): f"Of {split}." for split in ("train", "test", "qual_dev")
    }
    assert list(written(tmp_path, "docci", source, split="train")) == [str(folder / "train.jpg")]


def test_dci(tmp_path):
    for number, extra in enumerate(["Long 0.", ""]):
        values = {"image": f"sa_{number}.jpg", "short_caption": "S.", "extra_caption": extra}
        path = tmp_path / "annotations" / f"{number}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(values))
        touch(tmp_path / "photos" / f"sa_{number}.jpg")
    (tmp_path / "splits.json").write_text(json.dumps({"train": ["0.json"], "test": ["1.json"]}))
    assert list(written(tmp_path, "dci", tmp_path).values()) == ["long: Long 0. | short: S."]


def test_sharegpt4v(tmp_path):
    source = tmp_path / "share.json"
    source.write_text(json.dumps(conversations(3)))
    for number in range(3):
        touch(tmp_path / "data" / f"sam/images/sa_{number}.jpg")
    found = written(tmp_path, "sharegpt4v", source, images=tmp_path / "data")
    assert [caption.split()[:2] for caption in found.values()] == [
        ["Caption", f"{n}."] for n in range(3)
    ]


def test_several_short_captions_are_kinds_of_their_own(tmp_path):
    values = {
        "images": [{"id": 1, "file_name": "1.jpg"}, {"id": 2, "file_name": "2.jpg"}],
        "annotations": [
            {"image_id": 1, "caption": " A dog\n"}, {"image_id": 1, "caption": "It runs!"},
        ],
    }  # fmt: skip
    (tmp_path / "captions.json").write_text(json.dumps(values))
    touch(tmp_path / "1.jpg")
    assert written(tmp_path, "coco", tmp_path / "captions.json") == {
        str(tmp_path / "1.jpg"): "caption-1: A dog | caption-2: It runs!"
    }


def test_flickr30k(tmp_path):
    (tmp_path / "results.token").write_text("7.jpg#0\tA cat .\n7.jpg#1\tIt sleeps\n")
    touch(tmp_path / "7.jpg")
    assert list(written(tmp_path, "flickr30k", tmp_path / "results.token").values()) == [
        "caption-1: A cat . | caption-2: It sleeps"
    ]


def test_localized_narratives(tmp_path):
    rows = [
        {
            "dataset_id": "mscoco_val2017",
            "image_id": "137576",
            "annotator_id": 1,
            "caption": "Here.",
        },
        {
            "dataset_id": "mscoco_val2017",
            "image_id": "137576",
            "annotator_id": 2,
            "caption": "There.",
        },
        {
            "dataset_id": "open_images_val",
            "image_id": "0a1b",
            "annotator_id": 1,
            "caption": "A tree.",
        },
    ]
    for name in ("000000137576.jpg", "0a1b.jpg"):
        touch(tmp_path / "images" / name)
    source = lines(tmp_path / "narratives.jsonl", rows)
    found = written(tmp_path, "localized-narratives", source, images=tmp_path / "images")
    assert found == {
        str(tmp_path / "images" / "000000137576.jpg"): "caption-1: Here. | caption-2: There.",
        str(tmp_path / "images" / "0a1b.jpg"): "caption-1: A tree.",
    }


def test_goals_lists_of_images(tmp_path):
    (tmp_path / "test.json").write_text(
        json.dumps([{"filename": "/data/x/1.jpg", "caption": "One."}])
    )
    touch(tmp_path / "photos" / "x" / "1.jpg")
    found = written(tmp_path, "goal", tmp_path / "test.json", images=tmp_path / "photos")
    assert found == {str(tmp_path / "photos/x/1.jpg"): "One."}


def test_what_goes_out_as_goal_comes_in_and_is_built(built, tmp_path):
    export(Dataset(built), to="goal", output=tmp_path / "goal")
    output = tmp_path / "captions.jsonl"
    found = import_captions("goal-train", tmp_path / "goal" / "goal.json", output, images=None)
    assert (found.captions, found.missing) == (24, ())
    run_build(tmp_path / "goal" / "images", tmp_path / "again", captions=output, limit=3)
    again = {row.sample_id: row.caption.text for row in Dataset(tmp_path / "again")}
    before = {row.sample_id: row.caption.text for row in Dataset(built)}
    assert len(again) == 3 and again.items() <= before.items()


def test_missing_images_are_listed(tmp_path, run_glit):
    source = docci(tmp_path)
    (tmp_path / "images" / "test.jpg").unlink()
    done = run_glit("import", source, "--format", "docci", "-o", tmp_path / "captions.jsonl")
    assert done.code == 0 and done.output.startswith("2 captions: ")
    assert "images   3/3" in done.errors
    assert f"missing: {tmp_path / 'images' / 'test.jpg'}\n1 image is missing" in done.errors
    assert len(json_lines(tmp_path / "captions.jsonl")) == 2


def test_images_are_found_by_their_names_in_other_places(tmp_path, run_glit):
    """In another folder, with another suffix; not where two have the name."""
    source = docci(tmp_path)
    folder = tmp_path / "images"
    (folder / "a").mkdir()
    (folder / "train.jpg").rename(folder / "a" / "train.jpg")
    (folder / "test.jpg").rename(folder / "a" / "TEST.png")
    (folder / "b").mkdir()
    (folder / "qual_dev.jpg").rename(folder / "a" / "qual_dev.jpg")
    touch(folder / "b" / "qual_dev.jpg")
    words = ["import", source, "--format", "docci", "-o", tmp_path / "captions.jsonl", "--attach"]
    done = run_glit(*words)
    assert done.code == 0 and "2 of their images were found by name" in done.output
    found = {row["path"]: row["caption"] for row in json_lines(tmp_path / "captions.jsonl")}
    assert found == {"images/a/train.jpg": "Of train.", "images/a/TEST.png": "Of test."}
    assert "1 image is missing" in done.errors and "qual_dev.jpg" in done.errors


@pytest.mark.parametrize(("stated", "number"), [(None, 0), ((64, 48), 1), ((64, 64), 0)])
def test_numbers_in_names_tell_pictures_whose_size_is_stated(tmp_path, stated, number):
    """COCO's names of two years; a picture of another shape is not the one."""
    from PIL import Image

    Image.new("RGB", (128, 96)).save(tmp_path / "COCO_train2014_000000000009.jpg")
    row = {
        "filename": "/data/train2017/000000000009.jpg",
        "grounding": {
            "caption": "A red cup.",
            "regions": [
                {"phrase": "A red cup", "bbox": [1, 2, 30, 40], "tokens_positive": [[0, 9]]}
            ],
        },
    }
    if stated:
        row |= {"width": stated[0], "height": stated[1]}
    source = lines(tmp_path / "odvg.jsonl", [row])
    output = tmp_path / "made.jsonl"
    try:
        found = import_captions("odvg", source, output, images=tmp_path, attach=True)
    except InputError:
        assert not number
        return
    assert (found.captions, found.elsewhere, found.scaled) == (number, number, number)
    (box,) = json_lines(tmp_path / "made.regions.jsonl")
    assert box["path"] == "COCO_train2014_000000000009.jpg"
    assert box["box_xyxy"] == [2, 4, 60, 80]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "doci"], "did you mean 'docci'"),
        (["--format", "coco"], "not the coco annotations as published"),
        (["--format", "docci", "--images", "nowhere"], "none of 3 captioned images is there"),
        (["--format", "docci", "--split", "tset"], "no part 'tset'"),
        (["--format", "dci"], "a file; dci annotations are published as a folder"),
        (["--format", "docci", "-o", "captions.json"], "ends in .jsonl"),
    ],
)
def test_what_cannot_be_imported(tmp_path, run_glit, words, said, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = docci(tmp_path)
    if "-o" not in words:
        words = [*words, "-o", "new/captions.jsonl"]
    done = run_glit("import", source, *words, "--quiet")
    assert done.code == 2 and said in done.errors and done.errors.count("\n") == 1
    assert not list(tmp_path.rglob("captions*.json*"))


def test_every_format_but_the_joint_sets_is_there():
    assert {
        "docci",
        "dci",
        "sharegpt4v",
        "coco",
        "flickr30k",
        "localized-narratives",
        "goal",
    } <= set(imported())
    assert "goal-joint" not in imported()


def test_a_name_that_is_no_published_file(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        import_captions("docci", tmp_path / "no", tmp_path / "c.jsonl", images=None)


def test_beginnings_of_a_caption_follow_the_whole_one(tmp_path):
    texts = ["One.", "One. Two.", "One. Two. Three."]
    rows = [{"img_path": "a.jpg", "caption": texts}, {"img_path": "b.jpg", "caption": ["Only."]}]
    for name in ("a.jpg", "b.jpg"):
        touch(tmp_path / "images" / name)
    source = lines(tmp_path / "himo_docci_data.json", rows)
    assert list(written(tmp_path, "himo-docci", source).values()) == [
        "long: One. Two. Three. | first-1: One. | first-2: One. Two.",
        "long: Only.",
    ]


def test_imported_captions_of_several_kinds_are_built(scenes, tmp_path, run_glit):
    names = [f"{number:06d}.png" for number in range(3)]
    values = {
        "images": [{"id": at, "file_name": name} for at, name in enumerate(names)],
        "annotations": [
            {"image_id": at, "caption": f"Picture {at}, said {times}."}
            for at in range(3)
            for times in range(1 + at)
        ],
    }
    (tmp_path / "coco.json").write_text(json.dumps(values))
    output = tmp_path / "captions.jsonl"
    done = run_glit(
        "import", tmp_path / "coco.json", "--format", "coco", "--images", scenes / "images",
        "-o", output,
    )  # fmt: skip
    kinds = "caption-1, caption-2, caption-3"
    assert done.output == f"3 images with captions of the kinds {kinds}: {output}\n"
    run_build(scenes / "images", tmp_path / "out", recipe="captions-only", captions=output, limit=3)
    rows = [row.extra["captions"] for row in Dataset(tmp_path / "out")]
    assert [[each["text"] for each in row] for row in rows] == [
        [f"Picture {at}, said {times}." for times in range(1 + at)] for at in range(3)
    ]
