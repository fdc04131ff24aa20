"""Names of pictures that annotations write otherwise than the disk, and pictures that two claim."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from building import json_lines, png

from glit.inputs.importers import import_captions
from glit.inputs.published.files import with_suffix
from glit.inputs.source import entries, find_source
from glit.inputs.user_captions import read_captions
from glit.storage.members import spelt_on_disk


def touch(root: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(png(seed=number))
    return root


def boxes_of(tmp_path: Path, names: list[str], images: Path) -> tuple[dict[str, float], tuple]:
    """The first edge of the box by picture, which is ten times the number of the entry."""
    values = {
        "images": [{"id": n, "file_name": name} for n, name in enumerate(names, start=1)],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [
            {"image_id": n, "category_id": 1, "bbox": [n, n, 9, 9]}
            for n in range(1, len(names) + 1)
        ],
    }
    (tmp_path / "a.json").write_text(json.dumps(values))
    output = tmp_path / "o.jsonl"
    found = import_captions("coco-instances", tmp_path / "a.json", output, images=images)
    rows = json_lines(tmp_path / "o.regions.jsonl")
    assert found.regions == len(rows)
    root = images.relative_to(tmp_path).as_posix()
    return {r["path"].removeprefix(f"{root}/"): r["box_xyxy"][0] for r in rows}, found.refused


@pytest.mark.parametrize(
    ("written", "there"),
    [
        ("images\\0a1b2c3d-plain.jpg", "plain.jpg"),
        ("../../label-studio/data/media/upload/1/1b2c3d4e-other.jpg", "other.jpg"),
        ("https://a.org/x/a.jpg?sig=abc", "a.jpg"),
        ("s3://bucket/x/b%20c.jpg", "b c.jpg"),
        ("C:\\photos\\cats\\a.jpg", "cats/a.jpg"),
        ("100%25.jpg", "100%25.jpg"),
        ("a%20b.jpg", "a%20b.jpg"),
    ],
)
def test_a_picture_is_found_by_what_its_name_may_mean(tmp_path, written, there):
    images = touch(tmp_path / "photos", there)
    assert boxes_of(tmp_path, [written], images) == ({there: 1.0}, ())


@pytest.mark.parametrize(
    ("written", "there"),
    [
        ("IMG_1.JPG", "img_1.jpg"),
        ("0a1b2c3d-My_photo_1.jpg", "My photo (1).jpg"),
        ("0a1b2c3d-Capture_d%C3%A9cran_%C3%A9.png", "Capture d\u2019e\u0301cran e\u0301.png"),
    ],
)
def test_other_letters_are_a_last_resort_and_said(tmp_path, written, there):
    images = touch(tmp_path / "photos", there)
    with pytest.warns(UserWarning, match="is taken for it"):
        assert boxes_of(tmp_path, [written], images)[0] == {there: 1.0}


def test_of_two_that_differ_in_case_the_exact_or_none_is_taken(tmp_path):
    images = touch(tmp_path / "photos", "a.jpg", "A.jpg")
    assert spelt_on_disk(images, "A.jpg") == "A.jpg" and spelt_on_disk(images, "a.JPG") == "a.JPG"


def test_captions_and_lists_of_windows(tmp_path):
    images = touch(tmp_path / "photos", "cats/a.jpg", "cats/b.jpg")
    rows = [
        {"path": f"{start}cats\\{n}.jpg", "caption": "A."}
        for start, n in (("", "a"), (".\\photos\\", "b"))
    ]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = [row[0] for row in read_captions(tmp_path / "c.jsonl", str(images))]
    assert found == ["cats/a.jpg", "cats/b.jpg"]
    (images / "list.txt").write_text("cats\\a.jpg\ncats\\b.jpg\n")
    found = list(entries(find_source(str(images / "list.txt"))))
    assert [entry.path for entry in found] == ["cats/a.jpg", "cats/b.jpg"]
    assert all(entry.size > 0 for entry in found)


def test_a_path_that_leads_out_is_not_followed(tmp_path):
    images = touch(tmp_path / "photos", "a.jpg")
    touch(tmp_path, "secret.jpg")
    for path in ("..\\secret.jpg", "%2e%2e/secret.jpg", "../SECRET.jpg"):
        assert spelt_on_disk(images, path) == path


def test_the_entry_whose_path_names_the_folder_has_the_picture(tmp_path):
    images = touch(tmp_path / "dir_2", "x.png")
    for names in (["dir_1/x.png", "dir_2/x.png"], ["dir_2/x.png", "dir_1/x.png"]):
        found, refused = boxes_of(tmp_path, names, images)
        assert found == {"x.png": 1.0 + names.index("dir_2/x.png")}
        assert len(refused) == 1 and "whose path names its folder" in refused[0]


def test_a_picture_that_two_entries_claim_alike_has_no_boxes(tmp_path):
    images = touch(tmp_path / "dir_3", "x.png", "y.png")
    found, refused = boxes_of(tmp_path, ["dir_1/x.png", "y.png", "dir_2/x.png"], images)
    assert found == {"y.png": 2.0}
    assert len(refused) == 2 and all("names the same picture" in each for each in refused)


@pytest.mark.parametrize("order", [1, -1])
def test_an_entry_without_boxes_keeps_its_picture(tmp_path, order):
    images = touch(tmp_path / "dir_2", "x.png", "y.png")
    names = ["dir_1/x.png", "dir_2/x.png", "y.png"]
    coco = {
        "images": [
            {"id": n, "file_name": name, "width": 48, "height": 40}
            for n, name in [*enumerate(names)][::order]
        ],
        "categories": [{"id": 0, "name": "cat"}],
        "annotations": [
            {"image_id": n, "category_id": 0, "bbox": [n, 1, 8, 8], "id": n} for n in (0, 2)
        ],
    }
    (tmp_path / "a.json").write_text(json.dumps(coco))
    made = import_captions(
        "coco-instances", tmp_path / "a.json", tmp_path / "o.jsonl", images=images
    )
    rows = json_lines(tmp_path / "o.regions.jsonl")
    assert [row["path"] for row in rows] == ["dir_2/y.png"] and made.boxed == 1
    assert len(made.refused) == 1 and "whose path names its folder" in made.refused[0]


@pytest.mark.parametrize("form", ["goal-train", "goal-segments"])
@pytest.mark.parametrize("named", ["dir_2", "dir_3"])
def test_captions_of_two_folders_go_to_the_picture_of_the_named_one(tmp_path, form, named):
    images = touch(tmp_path / "dir_2", "x.png", "y.png")
    segment = {"bbox_coordinates": {"x1": 1, "y1": 1, "x2": 9, "y2": 9}, "filename": "s.png"}
    entries = [
        {
            "original_filename": f"{name}.png", "original_caption": f"It is {name}.",
            "segment": [{**segment, "caption": f"It is {name}."}],
        }
        for name in ("dir_1/x", "dir_1/x", f"{named}/x", "dir_1/x", "dir_2/y")
    ]  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps(entries))
    made = import_captions(form, tmp_path / "a.json", tmp_path / "o.jsonl", images=images)
    kept = ["It is dir_2/x."] * (named == "dir_2") + ["It is dir_2/y."]
    assert [row["caption"] for row in json_lines(tmp_path / "o.jsonl")] == kept
    assert made.captions == len(kept)
    if form == "goal-segments":
        assert len(json_lines(tmp_path / "o.regions.jsonl")) == made.regions == len(kept)


@pytest.mark.parametrize("how", ["root", "picture", "folder"])
@pytest.mark.parametrize("given", ["link", "real"])
def test_captions_reach_pictures_behind_links(tmp_path, monkeypatch, how, given):
    """An import names the picture as a build finds it, whichever of the two was a link."""
    real = touch(tmp_path / "real", "sub/a.png")
    link = tmp_path / "link"
    if how == "root":
        link.symlink_to("real")
    elif how == "folder":
        link.mkdir()
        (link / "sub").symlink_to(real / "sub")
    else:
        (link / "sub").mkdir(parents=True)
        (link / "sub" / "a.png").symlink_to(real / "sub" / "a.png")
    monkeypatch.chdir(tmp_path)
    annotation = {"image_id": 1, "caption": "A dog."}
    coco = {"images": [{"id": 1, "file_name": "sub/a.png"}], "annotations": [annotation]}
    (tmp_path / "c.json").write_text(json.dumps(coco))
    images = link if given == "link" else real
    import_captions("coco", Path("c.json"), Path("o.jsonl"), images=Path(images.name))
    assert [path for path, *_ in read_captions(Path("o.jsonl"), images.name)] == ["sub/a.png"]
    if how == "root":
        other = real if given == "link" else link
        assert [path for path, *_ in read_captions(Path("o.jsonl"), other.name)] == ["sub/a.png"]


def test_a_suffix_of_any_format_and_case_is_found(tmp_path):
    touch(tmp_path, "x.JPG", "y.tif", "z.bmp")
    found = [with_suffix(tmp_path / name).name for name in ("x", "y.tif", "z", "w", "v.1")]
    assert found == ["x.JPG", "y.tif", "z.bmp", "w.jpg", "v.1.jpg"]
