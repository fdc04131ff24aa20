"""The lists of GOAL's authors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from annotations import found, touch

from glit.errors import InputError
from glit.published import read_annotations

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
