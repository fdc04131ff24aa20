"""The lists of GOAL's authors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from annotations import found, touch
from building import json_lines, png, run_build

from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.exporters import export
from glit.inputs.importers import import_captions
from glit.inputs.published import read_annotations

PHOTOS = "../DCI/dataset/densely_captioned_images/photos"


SEGMENTS = "../pipline/segment_with_background_DCI_test_set_max_0.01"


def write(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=4))
    return path


def test_goal_lists_with_the_paths_of_their_authors(tmp_path: Path) -> None:
    """The published paths lead nowhere; what counts is their longest tail that is there."""
    names = ["chage/path/to/your/directory/dataset/images/qual_test_00000.jpg"]
    names += ["chage/path/to/your/directoryUrban1k/image/1.jpg", f"{PHOTOS}/sa_7.jpg"]
    rows = [{"filename": name, "caption": f"Caption {i}. "} for i, name in enumerate(names)]
    source = write(tmp_path / "datasets/docci_test.json", rows)
    root = tmp_path / "data"
    places = ["qual_test_00000.jpg", "image/1.jpg", "densely_captioned_images/photos/sa_7.jpg"]
    for place in [*places, "1.jpg", "photos/sa_7.jpg"]:
        touch(root / place)
    wanted = {str(root / place): (f"Caption {i}.",) for i, place in enumerate(places)}
    assert found("goal", source, root) == wanted
    with pytest.raises(InputError, match=r"photos/sa_7.jpg: leads out of .*give --images"):
        found("goal", source)
    with pytest.raises(InputError, match=r"3 of 3 images are missing \(first: .*other/qual_test"):
        found("goal", source, tmp_path / "other")


def test_goal_entries_of_one_file_are_one_image(tmp_path: Path) -> None:
    rows = [{"filename": f"val2014/{i}.jpg", "caption": f"{i} {n}"} for n in "ab" for i in (1, 2)]
    for i in (1, 2):
        touch(tmp_path / f"{i}.jpg")
    source = write(tmp_path / "coco_test.json", rows)
    assert list(found("goal", source, tmp_path).values()) == [("1 a", "1 b"), ("2 a", "2 b")]


def joint_rows() -> list[dict]:
    """As published: whole images first, then their segments in another order."""
    wholes = [
        {"filename": f"{PHOTOS}/sa_{i}.jpg", "caption": f"First {i}. Second {i}."} for i in range(3)
    ]
    segments = [
        {
            "filename": f"{SEGMENTS}/sa_{i}.jpg_results/{name}",
            "caption": f"Second {i}",
            "similarity_score": 25.272022247314453,
        }
        for i, name in ((2, "sa_2_max_12.png"), (0, "original_image.jpg"), (1, "sa_1_max_3.png"))
    ]
    return wholes + segments


def test_a_joint_set_of_goal(tmp_path: Path) -> None:
    source = write(tmp_path / "DCI_test_joint_sim_max_11.json", joint_rows())
    root = tmp_path / "data"
    for i in range(3):
        touch(root / "photos" / f"sa_{i}.jpg")
    touch(root / "original_image.jpg")  # of which image it would be nobody knows
    with pytest.raises(InputError, match=r"2 of 6 images are missing \(first: .*sa_1_max_3.png\)"):
        found("goal-joint", source, root)
    for i, name in ((1, "sa_1_max_3.png"), (2, "sa_2_max_12.png")):
        touch(root / f"sa_{i}.jpg_results" / name)
    images = read_annotations("goal-joint", source, images=root, split=None)
    assert [image.captions for image in images] == [(f"First {i}. Second {i}.",) for i in range(3)]
    assert [[s.sentence for s in image.segments] for image in images] == [
        ["Second 0"],
        ["Second 1"],
        ["Second 2"],
    ]
    assert [str(s.path.relative_to(root)) for image in images for s in image.segments] == [
        "photos/sa_0.jpg",
        "sa_1.jpg_results/sa_1_max_3.png",
        "sa_2.jpg_results/sa_2_max_12.png",
    ]
    copy = touch(root / "sa_0.jpg_results/original_image.jpg")
    images = read_annotations("goal-joint", source, images=root, split=None, limit=1)
    assert [segment.path for segment in images[0].segments] == [copy]


def test_the_two_lists_of_goal_are_not_taken_for_each_other(tmp_path: Path) -> None:
    rows = joint_rows()
    source = write(tmp_path / "joint.json", rows)
    with pytest.raises(InputError, match="is a segment: read joint sets as goal-joint"):
        found("goal", source, tmp_path)
    for changed, message in (
        (rows[:3], "no segments: read lists of whole images as goal"),
        (rows[1:], "no whole image is called sa_0"),
        ([*rows, rows[0]], "two whole images are called like"),
        ([*rows[:-1], {**rows[-1], "caption": " "}], "sa_1_max_3.png has no text"),
    ):
        with pytest.raises(InputError, match=message):
            found("goal-joint", write(source, changed), tmp_path)


def test_the_trainers_list_with_segments(tmp_path: Path) -> None:
    """Fields as goal_loss_finetuning.py and LISM/make_bbox.py have them; names are the authors'."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "sa_1.jpg").write_bytes(png(seed=1))

    def segment(name: str, caption: str, **box: float) -> dict:
        return {
            "filename": f"{SEGMENTS}/sa_1.jpg_results/{name}", "caption": caption,
            "similarity_score": 25.27, "bbox_coordinates": {"width": 10, "height": 12, **box},
        }  # fmt: skip

    caption = "A mall with escalators. It has  planters. The floor is polished."
    rows = [
        {"original_filename": f"{PHOTOS}/sa_1.jpg", "original_caption": caption, "segment": [
            segment("sa_1_max_3.png", "It has planters", x1=2, y1=3, x2=12, y2=15),
            segment("sa_1_max_4.png", "A mall with escalators", x1=20, y1=3, x2=30, y2=15),
            segment("original_image.jpg", "The floor is polished", x1=0, y1=0, x2=48, y2=40),
            segment("sa_1_max_5.png", "Of another image", x1=0, y1=0, x2=8, y2=4),
            segment("sa_1_max_6.png", "The floor is polished", x1=float("nan"), y1=0, x2=8, y2=4),
        ]},
    ]  # fmt: skip
    source = write(tmp_path / "docci_segment_sim_bbox_del_org.json", rows)
    result = import_captions("goal-segments", source, tmp_path / "out.jsonl", images=tmp_path)
    assert (result.captions, result.regions) == (1, 2)
    assert [each.split(": ")[1] for each in result.refused] == ["segment 4", "segment 5"]
    [line] = json_lines(tmp_path / "out.jsonl")
    said = [
        (row["box_xyxy"], [line["caption"][first:last] for first, last in row["sentences"]])
        for row in json_lines(tmp_path / "out.regions.jsonl")
    ]
    assert said == [
        ([2, 3, 12, 15], ["It has  planters"]), ([20, 3, 30, 15], ["A mall with escalators"]),
    ]  # fmt: skip


def test_what_is_exported_for_goal_is_imported_as_it_was(scenes: Path, tmp_path: Path) -> None:
    run_build(
        scenes / "images", tmp_path / "one", captions=scenes / "captions.jsonl", limit=3,
        recipe="mini", overrides=["propose.backend=grid", "pair.rule=lism"],
    )  # fmt: skip
    export(Dataset(str(tmp_path / "one")), to="goal", output=tmp_path / "goal")
    import_captions(
        "goal-segments", tmp_path / "goal/goal.json", tmp_path / "out.jsonl", images=None
    )
    run_build(
        tmp_path / "goal/images", tmp_path / "two", recipe="provided",
        captions=tmp_path / "out.jsonl", regions=tmp_path / "out.regions.jsonl",
    )  # fmt: skip

    def pairs(folder: Path) -> dict[str, set]:
        return {
            row.caption.text: {
                (row.sentences[pair.sentence].text, row.regions[pair.region].box.xyxy)
                for pair in row.pairs
                if not pair.global_wins
            }
            for row in Dataset(str(folder))
        }

    before = pairs(tmp_path / "one")
    assert sum(map(len, before.values())) > 3
    assert pairs(tmp_path / "two") == {text: found for text, found in before.items() if found}
