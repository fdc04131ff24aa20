"""Every kind of fault is found in published files, and clean files have none."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from noticed import noticed
from PIL import Image
from sound_files import caption, mdetr_values, odvg_rows

from glit import api
from glit.errors import GlitError, InputError
from glit.inspection import inspect
from glit.inspection.formats import format_of
from glit.view.audit import example_thumbnail


def test_sound_files_have_no_fault(audited, images, tmp_path):
    assert audited(odvg_rows()) == {} and audited(mdetr_values()) == {}
    report = api.audit(tmp_path / "file.json", images=images)
    assert (report.images, report.format, report.has_errors) == (6, "mdetr", False)
    assert {"span-words", "box-outside", "picture-damaged", "caption-near"} <= {*report.clean}
    assert dict(report.skipped)["in-test-set"].endswith("add --against LIST")


BOXES = {
    "box-outside": [[10, 12, 290, 80], [120, 90, 190, 140], [60, 100, 110, 145]],
    "box-empty": [[10, 12, 10, 80], [120, 90, 190, 140], [60, 100, 110, 145]],
    "box-units": [[0.1, 0.1, 0.5, 0.6], [0.6, 0.6, 0.9, 0.9], [0.3, 0.7, 0.5, 0.9]],
    "box-corners": [[10, 12, 80, 68], [120, 90, 70, 50], [60, 100, 50, 45]],
}


@pytest.mark.parametrize("code", BOXES)
def test_boxes_of_one_image(audited, code):
    rows = odvg_rows()
    for region, box in zip(rows[2]["grounding"]["regions"], BOXES[code], strict=True):
        region["bbox"] = box
    assert audited(rows) == {code: ["2.png"]}


def test_corner_and_size_written_as_corners_and_thousandths(audited):
    values = mdetr_values()
    for box in values["annotations"][3:6]:
        x, y, width, height = box["bbox"]
        box["bbox"] = [x, y, x + width, y + height]
    assert audited(values) == {"box-corners": ["1.png"]}
    rows = odvg_rows()
    for region in rows[4]["grounding"]["regions"]:
        region["bbox"] = [e * s for e, s in zip(region["bbox"], (5, 6, 5, 6), strict=True)]
    assert audited(rows) == {"box-units": ["4.png"]}


def test_spans_and_words(audited):
    rows = odvg_rows()
    regions = [row["grounding"]["regions"][0] for row in rows]
    regions[0]["tokens_positive"] = [[2, 12]]
    regions[1]["tokens_positive"] = [[500, 510]]
    regions[2] |= {"phrase": "a zeppelin", "tokens_positive": []}
    assert audited(rows) == {"span-words": ["0.png", "1.png"], "text-outside": ["2.png"]}
    values = mdetr_values()
    values["annotations"][0]["tokens_positive"] = [[3, 12]]
    values["annotations"][3]["tokens_positive"] = [[900, 912]]
    assert audited(values) == {"span-words": ["1.png"], "span-in-word": ["0.png"]}


def test_stated_sizes(audited, images):
    rows = odvg_rows()
    rows[0] |= {"width": 400, "height": 300}
    rows[1] |= {"width": 400}
    rows[2] |= {"width": "wide"}
    turned = Image.open(images / "3.png").transpose(Image.Transpose.ROTATE_90)
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.transpose(Image.Transpose.ROTATE_90).save(images / "3.png", exif=exif)
    found = audited(rows)
    assert found == {
        "stated-shape": ["1.png", "2.png"], "stated-size": ["0.png"], "stated-turned": ["3.png"],
    }  # fmt: skip


def test_pictures(audited, images):
    data = (images / "0.png").read_bytes()
    (images / "0.png").write_bytes(data[: len(data) // 2])
    (images / "1.png").write_bytes(b"8BPS\0\1" + bytes(60))
    Image.new("RGB", (200, 20)).resize((80, 60)).save(images / "2.png")
    small = io.BytesIO()
    Image.new("RGB", (20, 15)).save(small, "PNG")
    (images / "3.png").write_bytes(small.getvalue())
    (images / "4.png").unlink()
    rows = odvg_rows()
    found = audited(rows)
    assert found == {
        "picture-damaged": ["0.png"], "picture-missing": ["4.png"], "picture-format": ["1.png"],
        "picture-small": ["3.png"], "stated-size": ["2.png", "3.png"],
        "picture-blank": ["2.png", "3.png"],
    }  # fmt: skip


def test_a_listed_picture_that_is_absent_is_told(images, tmp_path):
    """One without a box too; and a caption of what is no picture of the folder."""
    entries = [{"id": n, "file_name": f"{n}.png"} for n in (*range(6), 9)]
    boxes = [{"image_id": 0, "category_id": 1, "bbox": [1, 1, 9, 9]}]
    values = {"images": entries, "annotations": boxes, "categories": [{"id": 1, "name": "a"}]}
    (tmp_path / "a.json").write_text(json.dumps(values))
    (tmp_path / "c.jsonl").write_text(
        "".join(json.dumps({"path": path, "caption": "A red cup."}) + "\n" for path in ("0.png", "../x.png"))
    )  # fmt: skip
    for name, number, of in (("a.json", 7, "9.png"), ("c.jsonl", 2, "../x.png")):
        report = api.audit(tmp_path / name, images=images)
        assert report.images == number
        [found] = [each for each in report.findings if each.code == "picture-missing"]
        assert [each.name for each in found.examples] == [of]


def test_the_box_that_is_spoken_of_is_drawn(images, tmp_path):
    row = {"path": "0.png", "box_xyxy": [10, 10, 500, 40]}
    (tmp_path / "r.jsonl").write_text(json.dumps(row) + "\n")
    report = api.audit(tmp_path / "r.jsonl", images=images, page=tmp_path / "a.html")
    [found] = [each for each in report.findings if each.code == "box-outside"]
    data = (images / "0.png").read_bytes()
    assert found.examples[0].picture == example_thumbnail(data, [(10, 10, 500, 40)])
    assert found.examples[0].picture != example_thumbnail(data)


def test_boxes_of_several_kinds_of_one_image_are_right(images, tmp_path):
    rows = [
        {"path": "0.png", "box_xyxyn": [0.1, 0.1, 0.5, 0.5]},
        {"path": "0.png", "box_xyxy": [1, 1, 30, 30]},
    ]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert not api.audit(tmp_path / "r.jsonl", images=images).has_errors


def test_a_folder_of_labels_as_roboflow_writes_it_is_seen(images, tmp_path):
    (tmp_path / "data.yaml").write_text("names: [cat]\n")
    (tmp_path / "train" / "labels").mkdir(parents=True)
    (tmp_path / "train" / "labels" / "0.txt").write_text("0 0.9 0.5 0.6 0.2\n")
    images.rename(tmp_path / "train" / "images")
    for what in (tmp_path, tmp_path / "data.yaml"):
        report = api.audit(what)
        assert report.format == "yolo" and [f.code for f in report.findings] == ["box-outside"]


def test_a_picture_that_forbids_training_and_its_licence(audited, images):
    """Written by exiv2."""
    notices = {
        "Xmp.plus.DataMining": "http://ns.useplus.org/ldf/vocab/DMI-PROHIBITED-AIMLTRAINING",
        "Xmp.xmpRights.WebStatement": "https://example.org/licence",
    }
    (images / "1.png").write_bytes(noticed((images / "1.png").read_bytes(), notices))
    assert audited(odvg_rows()) == {"mining-prohibited": ["1.png"]}


def test_names(audited, images, tmp_path):
    (tmp_path / "secret.png").write_bytes(b"not to be read")
    rows = [{"path": f"{n}.png", "caption": caption(n)} for n in range(6)]
    names = [
        "../secret.png",
        str(tmp_path / "secret.png"),
        "a\x07.png",
        "con.png",
        "B.png",
        "b.png",
    ]
    for row, name in zip(rows, names, strict=True):
        row["path"] = name
    found = audited(rows)
    assert found["name-unsafe"] == ["../secret.png", "a\x07.png"]
    assert found["name-unportable"] == ["con.png"] and found["name-clash"] == ["B.png", "b.png"]
    assert "picture-damaged" not in found  # nothing outside was read


def test_captions(audited):
    rows = odvg_rows()
    texts = [
        "I'm sorry, but I cannot help with that.",
        "A cup. " + "a red cup and " * 20,
        "Das ist ein großer Hund, der mit einem Ball auf der Wiese liegt und auf die Katze wartet.",
        "",
    ]
    found = audited([
        {"path": row["filename"], "caption": text}
        for row, text in zip(rows, [*texts, caption(4), caption(4)], strict=True)
    ])  # fmt: skip
    assert found == {
        "caption-refusal": ["0.png"], "caption-looping": ["1.png"], "caption-language": ["2.png"],
        "caption-empty": ["3.png"], "caption-repeated": ["4.png", "5.png"],
    }  # fmt: skip


def test_a_file_in_another_language_is_no_fault(audited):
    german = (
        "Auf dem Bild ist ein Hund, der mit einem Ball auf der Wiese Nummer {} liegt und wartet."
    )
    rows = [{"path": f"{n}.png", "caption": german.format(n)} for n in range(6)]
    rows[0]["caption"] = (
        "The dog is on the grass and it looks at the ball that is to the left of it."
    )
    assert audited(rows)["caption-language"] == ["0.png"]


def test_captions_that_nearly_repeat(audited):
    words = " ".join(f"thing{n} beside another{n}" for n in range(20))
    texts = [words, words.replace("thing9", "something"), *map(caption, range(4))]
    rows = [{"path": f"{n}.png", "caption": text} for n, text in enumerate(texts)]
    assert audited(rows) == {"caption-near": ["0.png", "1.png"]}


def test_captions_of_one_picture_may_repeat(audited):
    rows = [{"path": f"{n // 2}.png", "caption": caption(n // 2)} for n in range(6)]
    assert audited(rows) == {}


def test_a_test_set(audited, images, tmp_path):
    (tmp_path / "held-out").mkdir()
    shutil.copy(images / "1.png", tmp_path / "held-out" / "renamed.png")
    assert audited(odvg_rows(), against=tmp_path / "held-out") == {"in-test-set": ["1.png"]}


def test_pictures_that_nobody_promised(tmp_path):
    file = tmp_path / "alone.jsonl"
    file.write_text("\n".join(map(json.dumps, odvg_rows())))
    report = api.audit(file)
    assert report.findings == ()
    assert dict(report.skipped)["picture-missing"].endswith("name their folder with --images")


def test_coco_with_licences_and_an_empty_caption(audited, images, tmp_path):
    entries = [{"id": n, "file_name": f"{n}.png", "license": n % 2} for n in range(6)]
    texts = [{"image_id": n, "caption": caption(n)} for n in range(5)]
    licences = [{"id": 0, "name": "CC BY 2.0"}, {"id": 1, "url": "http://a/b"}]
    assert audited({"images": entries, "annotations": texts, "licenses": licences}) == {
        "caption-empty": ["5.png"]
    }
    report = api.audit(tmp_path / "file.json", images=images)
    assert report.licences == (("CC BY 2.0", 3), ("http://a/b", 3))


def test_grit_in_pixels(images, tmp_path):
    chunk = [0, 10, 0.1, 0.1, 0.5, 0.6, 1.0]
    rows = [{"key": f"{n:09}", "file_name": f"{n}.png", "caption": caption(n),
             "noun_chunks": [chunk, [11, 16, 0.2, 0.3, 0.9, 0.9, 1.0]], "ref_exps": []}
            for n in range(6)]  # fmt: skip
    rows[2]["noun_chunks"] = [[0, 10, 20, 15, 100, 90, 1.0], [11, 16, 40, 45, 180, 135, 1.0]]
    lists = pa.list_(pa.list_(pa.float64()))
    schema = pa.schema({"key": pa.string(), "file_name": pa.string(), "caption": pa.string(),
                        "noun_chunks": lists, "ref_exps": lists})  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "0.parquet")
    report = api.audit(tmp_path / "0.parquet", images=images)
    assert [(f.code, [e.name for e in f.examples]) for f in report.findings] == [
        ("box-units", ["2.png"])
    ]


def test_images_with_texts_in_a_folder(images):
    for number in range(5):
        (images / f"{number}.txt").write_text(caption(number))
    (images / "2.txt").write_text("I'm sorry, but I cannot help with that.")
    report = api.audit(images)
    assert (report.format, report.images) == ("images", 6)
    assert [(f.code, f.looked_at, f.at_fault) for f in report.findings] == [
        ("caption-refusal", 5, 1)
    ]


def test_the_same_file_has_the_same_report(images, tmp_path):
    rows = odvg_rows()
    rows[1]["grounding"]["regions"][0]["bbox"][2] = 900
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    first, second = (api.audit(tmp_path / "a.jsonl", images=images) for _ in range(2))
    assert first == second and first.has_errors


def test_what_cannot_be_read_is_a_fault_or_one_line(images, tmp_path):
    lines = [*map(json.dumps, odvg_rows()[:3]), "{" * 5000, json.dumps(odvg_rows()[4])]
    (tmp_path / "deep.jsonl").write_text("\n".join(lines))
    (found,) = api.audit(tmp_path / "deep.jsonl", images=images).findings
    assert (found.code, found.examples[0].name) == ("unreadable", "deep.jsonl")
    assert "reading stopped after line 3" in found.examples[0].detail
    hostile = {
        "nested.json": "[" * 100_000, "empty.json": "", "text.jsonl": "hello", "cut.json": '{"a": ',
        "null.jsonl": "null", "list.json": "[1, 2]", "no.bin": "\0\1\2",
    }  # fmt: skip
    for name, text in hostile.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(GlitError) as error:
            api.audit(tmp_path / name)
        assert "\n" not in str(error.value) and len(str(error.value)) < 1000, name


def test_numbers_that_are_none(audited):
    rows = odvg_rows()
    rows[0]["grounding"]["regions"][0]["bbox"] = [float("nan"), 0, 10, 10]
    rows[1]["grounding"]["regions"][0]["bbox"] = [1e400, 0, 10, 10]
    rows[2]["grounding"]["regions"][0]["bbox"] = ["x", 0, 10, 10]
    rows[3]["grounding"]["regions"][0]["bbox"] = [0, 0, 10]
    found = audited(rows)
    assert found == {"box-empty": ["0.png", "1.png", "3.png"], "unreadable": ["2.png"]}


def test_a_pipe_is_not_waited_for(images, tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(InputError, match="no regular file"):
        api.audit(tmp_path / "pipe.jsonl")
    os.mkfifo(images / "6.png")
    (tmp_path / "c.jsonl").write_text(json.dumps({"path": "6.png", "caption": caption(0)}))
    report = api.audit(tmp_path / "c.jsonl", images=images)
    assert [f.code for f in report.findings] == ["picture-damaged"]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('{"images": [{"id": 1}], "annotations": [{"bbox": [], "tokens_positive": []}]}', "mdetr"),
        ('{"images": [], "annotations": [{"bbox": []}], "categories": []}', "coco-instances"),
        ('{"images": [{"coco_url": ""}], "annotations": [{"bbox": []}]}', "coco-instances"),
        ('{"images": [], "annotations": [{"caption": ""}]}', "coco"),
        ('{"images": [{"sentences": [{"raw": ""}]}], "dataset": "coco"}', "coco"),
        ('{"images": [{"sentences": [{"raw": ""}]}], "dataset": "flickr30k"}', "flickr30k"),
        ('[{"f_path": "a", "caption": ""}]', "finehard"),
        ('[{"id": 1, "regions": []}]', "visual-genome"),
        ('[{"image": "", "conversations": []}]', "sharegpt4v"),
        ('[{"filename": "", "caption": ""}]', "goal-train"),
        ('[{"id": 1, "data": {}, "annotations": []}]', "label-studio"),
    ],
)
def test_the_format_is_told_by_the_content(tmp_path, text, form):
    (tmp_path / "a.json").write_text(text)
    assert format_of(tmp_path / "a.json", None) == (form, tmp_path / "a.json")


def test_annotations_among_pictures_are_looked_at(images, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(images, folder / "images")
    assert format_of(folder, None) == ("images", folder)
    told = {"filename": "images/0.png", "grounding": {"caption": "A cup.", "regions": []}}
    (folder / "all.jsonl").write_text(json.dumps(told))
    assert format_of(folder, None) == ("odvg", folder / "all.jsonl")
    (folder / "notes.json").write_text("{}")
    (folder / "more.csv").write_text("path,caption\nimages/0.png,A cup.\n")
    with pytest.raises(InputError, match=r"all.jsonl \(odvg\), more.csv \(captions\); name one"):
        format_of(folder, None)
    assert format_of(folder, "images") == ("images", folder)


def test_boxes_of_tools_are_looked_at(images, tmp_path):
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "0.txt").write_text("0 0.5 0.5 0.2 0.2\n0 0.9 0.5 0.5 0.2\n")
    assert format_of(tmp_path, None) == ("images", tmp_path)
    (tmp_path / "classes.txt").write_text("cat\n")
    report = api.audit(tmp_path)
    assert (report.format, [f.code for f in report.findings]) == ("yolo", ["box-outside"])
    for name in ("Annotations", "JPEGImages"):
        (tmp_path / "voc" / name).mkdir(parents=True)
    assert format_of(tmp_path / "voc", None)[0] == "voc"
    (tmp_path / "a.xml").write_text('<annotations>\n<image id="0" name="0.png"/></annotations>')
    assert format_of(tmp_path / "a.xml", None)[0] == "cvat"
    bad = "<bndbox><xmin>9</xmin><ymin>9</ymin><xmax>400</xmax><ymax>90</ymax></bndbox>"
    about = f"<filename>0.png</filename><object><name>cat</name>{bad}</object>"
    (images / "0.xml").write_text(f"<annotation>{about}</annotation>")
    report = api.audit(images)
    assert (report.format, [f.code for f in report.findings]) == ("voc", ["box-outside"])
    (images / "0.xml").unlink()
    shape = {"shape_type": "rectangle", "label": "cat", "points": [[10, 10], [400, 90]]}
    about = {"version": "6.3.1", "flags": {}, "shapes": [shape], "imagePath": "0.png"}
    (images / "0.json").write_text(json.dumps(about))
    report = api.audit(images)
    assert (report.format, [f.code for f in report.findings]) == ("labelme", ["box-outside"])
    (images / "0.json").unlink()
    (images / "0.txt").write_text("0 12 20 30 40\n0 5 9 30 40\n")
    assert format_of(images, None)[0] == "images"
    (images / "classes.txt").write_text("cat\n")
    [found] = api.audit(images).findings
    assert (found.code, found.at_fault, found.examples[0].name) == ("box-units", 1, "0.png")
    (tmp_path / "a.zip").touch()
    assert format_of(tmp_path / "a.zip", None)[0] == "images"


def test_licences_are_counted_up_to_a_number(audited, images, tmp_path, monkeypatch):
    monkeypatch.setattr(inspect, "_MOST_LICENCES", 2)
    values = mdetr_values()
    values["licenses"] = [{"id": n, "name": f"licence {n}"} for n in range(6)]
    for number, entry in enumerate(values["images"]):
        entry["license"] = number
    audited(values)
    report = api.audit(tmp_path / "file.json", images=images)
    assert report.licences == (("others", 4), ("licence 0", 1), ("licence 1", 1))


def test_images_have_no_parts(images):
    with pytest.raises(InputError, match="no parts"):
        api.audit(images, split="train")


def test_a_format_that_is_unknown(tmp_path):
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(InputError, match="its format cannot be told"):
        api.audit(tmp_path / "a.json")
    (tmp_path / "a.jsonl").write_text('{"name": 1}')
    with pytest.raises(InputError, match="its format cannot be told; name it with --format"):
        api.audit(tmp_path / "a.jsonl")
    with pytest.raises(InputError, match="did you mean 'mdetr'"):
        api.audit(tmp_path / "a.jsonl", format="mdtr")


def test_refcoco_with_a_box_outside(images, tmp_path):
    def sentence(number: int) -> list[dict[str, str]]:
        return [{"sent": f"the {number} red kites over the meadow"}]

    refs = [{"ref_id": n, "image_id": n, "ann_id": n, "split": "val", "sentences": sentence(n)}
            for n in range(6)]  # fmt: skip
    boxes = [{"id": n, "bbox": [10, 10, 900 if n == 2 else 50, 40], "category_id": 1}
             for n in range(6)]  # fmt: skip
    entries = [{"id": n, "file_name": f"{n}.png", "width": 200, "height": 150} for n in range(6)]
    (tmp_path / "refs(unc).p").write_bytes(pickle.dumps(refs))
    (tmp_path / "instances.json").write_text(
        json.dumps(
            {"images": entries, "annotations": boxes, "categories": [{"id": 1, "name": "kite"}]}
        )
    )
    report = api.audit(tmp_path / "refs(unc).p", images=images)
    assert [(f.code, f.at_fault, f.looked_at) for f in report.findings] == [("box-outside", 1, 6)]


def test_flickr30k_entities_with_a_missing_picture(images, tmp_path):
    for number in range(3):
        size = "<size><width>200</width><height>150</height></size>"
        box = "<bndbox><xmin>11</xmin><ymin>11</ymin><xmax>60</xmax><ymax>50</ymax></bndbox>"
        for name, text in (
            (f"Annotations/{number}.xml", f"<annotation><filename>{number}.png</filename>{size}"
             f"<object><name>7</name>{box}</object></annotation>"),
            (f"Sentences/{number}.txt", f"[/EN#7/other A red kite] over {number} boats .\n"),
        ):  # fmt: skip
            place = tmp_path / "entities" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
    (images / "1.png").unlink()
    report = api.audit(tmp_path / "entities", images=images)
    assert report.format == "flickr30k-entities" and report.images == 3
    assert [(f.code, f.examples[0].name) for f in report.findings] == [("picture-missing", "1.png")]


def test_what_a_model_left_in_a_caption_is_named(images, tmp_path):
    texts = ["A dog.</s>", "A\u0120cat\u0120sits.", "<think>Hm</think>A cup.", "A <unk> car."]
    lines = [{"image": f"{at}.png", "caption": text} for at, text in enumerate(texts)]
    lines.append({"image": "4.png", "caption": "A house stands here."})
    file = tmp_path / "captions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    report = api.audit(file, images=images)
    (found,) = [each for each in report.findings if each.code == "caption-garbled"]
    assert [each.name for each in found.examples] == ["0.png", "1.png", "2.png", "3.png"]
    assert found.examples[0].detail.startswith("further turns: ")
