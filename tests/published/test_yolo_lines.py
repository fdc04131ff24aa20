"""What a line of a YOLO label file is, and where its names and pictures are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from box_imports import taken, write
from building import png

from glit.errors import InputError
from glit.inputs.importers import Imported

BOX = {"box_xyxyn": [0.4, 0.4, 0.6, 0.6], "label": "cat"}


def yolo_of(folder: Path, *texts: str, yaml: str = "") -> tuple[Imported, list[dict]]:
    for number, text in enumerate(texts):
        (folder / f"{number}.png").write_bytes(png(seed=number))
        write(folder / f"{number}.txt", text)
    write(folder / "data.yaml", f"names: [cat, dog]\n{yaml}")
    found, rows = taken("yolo", folder)
    boxes = [row for each in rows.values() for row in each]
    for row in boxes:
        row["box_xyxyn"] = [round(edge, 6) for edge in row["box_xyxyn"]]
    return found, boxes


@pytest.mark.parametrize(
    ("line", "yaml", "row"),
    [
        ("0 .5 .5 .2 .2 .5 .45 1", "", BOX),
        ("0 .5 .5 .2 .2 .5 .45 2 0 0 0", "", BOX),
        ("0 .5 .5 .2 .2 .45 .45 .55 .55", "kpt_shape: [2, 2]", BOX),
        ("0 .5 .5 .2 .2 .9 17", "", {**BOX, "score": 0.9}),
        ("0 .5 .5 .2 .2 .9 1", "task: track", {**BOX, "score": 0.9}),
        ("0 .4 .4 .6 .4 .6 .6 .4 .6", "", BOX),
        ("0 .4 .4 .6 .4 .6 .6 .4 .6 .5", "", {**BOX, "score": 0.5}),
        ("0 .6 .6 .4 .4 .6 .4", "task: segment", BOX),
        ("0 .4 .5 .5 .4 .6 .5 .5 .6", "", BOX),
        ("0 .7 .1 .9 .1 .9 .3 .8 .3 .7 .3", "", {**BOX, "box_xyxyn": [0.7, 0.1, 0.9, 0.3]}),
        ("0.00e+00 .5 .5 .2 .2", "", BOX),
        ("0 .4 .4 .6 .4 .6 .6 .4 .6 3", "", BOX),
        ("0 .4 .4 .6 .4 .6 .6 .4 .6 .5 3", "", {**BOX, "score": 0.5}),
        ("0 .4 .4 .6 .4 .6 .6 .4 .6 1", "task: track", BOX),
        ("0 .5 .5 .2 .2 7", "", BOX),
        ("0 .5 .5 .2 .2 1", "task: track", BOX),
        ("0 .5 .5 .2 .2 1", "", {**BOX, "score": 1.0}),
        ("0 .7 .1 .9 .1 .9 .3 .8 .3 .7 .3 7", "", {**BOX, "box_xyxyn": [0.7, 0.1, 0.9, 0.3]}),
        (
            "0 .1 .7 .1 .9 .3 .9 .3 .8 .9 7",
            "task: track",
            {**BOX, "box_xyxyn": [0.1, 0.7, 0.3, 0.9], "score": 0.9},
        ),
    ],
)
def test_what_a_line_of_yolo_is(tmp_path, line, yaml, row):
    found, rows = yolo_of(tmp_path, line, yaml=yaml)
    assert rows == [row] and not found.refused


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 .5 .5 .2 .2 .45 .45 .55 .55", r"may be a box and 4 numbers .* 'kpt_shape: \[2, 2\]'"),
        ("0 .5 .5 .2 .2 .9 1", "may be a box and 2 numbers of key points or tracks, or corners"),
        ("0.5 .5 .5 .2 .2", "class 0.5, want a number from 0 to 1"),
        ("-1 .5 .5 .2 .2", "class -1, want"),
        ("nan .5 .5 .2 .2", "class nan, want"),
        ("0 .5 .5 .2 .2 87.5", "a score of 87.5, want one from 0 to 1"),
    ],
)
def test_a_line_of_yolo_that_nothing_tells_is_left_out(tmp_path, line, message):
    with pytest.raises(InputError, match=message):
        yolo_of(tmp_path, line)


def test_other_lines_tell_what_a_line_is(tmp_path):
    (tmp_path / "a").mkdir()
    found, rows = yolo_of(tmp_path / "a", "0 .5 .5 .2 .2 .9 1", "1 .5 .5 .2 .2 .8 24")
    assert [row["score"] for row in rows] == [0.9, 0.8] and not found.refused
    (tmp_path / "b").mkdir()
    segment = "0 .1 .1 .9 .1 .9 .2 .5 .8 .1 .2"
    found, rows = yolo_of(tmp_path / "b", "0 .5 .5 .3 .3 .45 .45 .55 .55", segment)
    assert [row["box_xyxyn"] for row in rows] == [[0.3, 0.3, 0.55, 0.55], [0.1, 0.1, 0.9, 0.8]]


def test_numbers_of_tracks_are_told_by_the_lines_of_higher_ones(tmp_path):
    segment = "0 .7 .1 .9 .1 .9 .3 .8 .3 .7 .3"
    (tmp_path / "a").mkdir()
    _, rows = yolo_of(tmp_path / "a", f"{segment} .9 1", f"{segment} .8 4", "0 .5 .5 .2 .2 .7")
    assert [row.get("score") for row in rows] == [0.9, 0.8, 0.7]
    assert rows[0]["box_xyxyn"] == rows[1]["box_xyxyn"] == [0.7, 0.1, 0.9, 0.3]
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match="may be a box and 8 numbers .* or corners"):
        yolo_of(tmp_path / "b", *[f"{segment} .9 1"] * 3)


def test_empty_lines_of_names_hold_their_place(tmp_path, pictures):
    write(pictures / "classes.txt", "person\n\ncar\n\n")
    write(pictures / "one.txt", "2 .5 .5 .2 .2\n0 .5 .5 .3 .3\n1 .5 .5 .4 .4\n3 .5 .5 .1 .1\n")
    found, rows = taken("yolo", pictures)
    assert [row["label"] for row in rows["one.png"]] == ["car", "person"]
    assert "class 1 has no name" in found.refused[0] and "from 0 to 2" in found.refused[1]


def test_names_among_the_labels_and_in_another_encoding(tmp_path, pictures):
    write(tmp_path / "labels" / "classes.txt", "cat\n")
    write(tmp_path / "labels" / "one.txt", "0 .5 .5 .2 .2\n")
    _, rows = taken("yolo", tmp_path)
    assert rows == {"one.png": [BOX]}
    (tmp_path / "labels" / "classes.txt").write_bytes("\u72d7\n".encode("gbk"))
    with pytest.raises(InputError, match=r"classes.txt: byte 0 .*; save the file as UTF-8"):
        taken("yolo", tmp_path)


def test_labels_without_pictures_beside_them(tmp_path, pictures):
    write(tmp_path / "yolo" / "obj.names", "cat\ndog\n")
    write(tmp_path / "yolo" / "train.txt", "data/obj_train_data/one.png\n")
    write(tmp_path / "yolo" / "obj_train_data" / "one.txt", "0 .5 .5 .2 .2\n")
    _, rows = taken("yolo", tmp_path / "yolo", pictures)
    assert rows == {"one.png": [BOX]}
    with pytest.raises(InputError, match="name their folder with --images"):
        taken("yolo", tmp_path / "yolo")


def test_a_yaml_that_names_another_folder(tmp_path, pictures):
    write(tmp_path / "cfg" / "a.yaml", "path: ../set\ntrain: images/train\nnames: {0: cat}\n")
    (tmp_path / "set" / "images").mkdir(parents=True)
    (pictures / "one.png").rename(tmp_path / "set" / "images" / "one.png")
    write(tmp_path / "set" / "labels" / "one.txt", "0 .5 .5 .2 .2\n")
    _, rows = taken("yolo", tmp_path / "cfg" / "a.yaml")
    assert rows == {"one.png": [BOX]}


@pytest.mark.parametrize("ids", [(1, 2, 7), (1, 1, 1), (1,)])
@pytest.mark.parametrize("with_score", [False, True])
@pytest.mark.parametrize("kind", ["boxes", "obb", "masks"])
def test_what_ultralytics_writes_of_tracks_is_right_or_refused(tmp_path, kind, with_score, ids):
    """Its own writer is the judge: no box is ever another one."""
    results = pytest.importorskip("ultralytics.engine.results", reason="wants the extra yolo")
    lines = []
    for number, track in enumerate(ids):
        box = torch.tensor([[20.0, 10, 120, 60, track, 0.87, 0]])
        mask = torch.zeros(1, 100, 200)
        mask[0, 10:61, 20:121] = 1
        mask[0, 10:20, 20:40] = 0  # an L, which is no turned box
        turned = torch.tensor([[70.0, 35, 100, 50, 0, track, 0.87, 0]])
        parts = {
            "boxes": {"boxes": box},
            "obb": {"obb": turned},
            "masks": {"boxes": box, "masks": mask},
        }
        picture = np.zeros((100, 200, 3), np.uint8)
        made = results.Results(picture, path="x.png", names={0: "cat", 1: "dog"}, **parts[kind])
        file = tmp_path / f"of-{number}"
        made.save_txt(str(file), save_conf=with_score)
        lines.append(file.read_text().strip())
    try:
        _, rows = yolo_of(tmp_path, *lines)
    except InputError as error:
        assert "task: track" in str(error) and with_score and set(ids) == {1}
        return
    assert len(rows) == len(ids)
    for row in rows:
        assert row["box_xyxyn"] == pytest.approx([0.1, 0.1, 0.6, 0.6], abs=0.011)
