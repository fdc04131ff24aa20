"""Published captions with boxes become two files that a build takes."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from annotations import lines
from building import json_lines, png, run_build
from typer.testing import CliRunner

import glit
from glit.cli.main import app
from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.inputs.importers import import_captions, regions_file
from glit.inputs.published import FORMATS

CAPTION = "Two guys with shaggy hair look at a dog."


@pytest.fixture
def images(tmp_path) -> Path:
    """Four images of 48 by 40 pixels."""
    for number, name in enumerate(["1.jpg", "2.jpg", "00000/000000001.jpg", "g.png"]):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(seed=number))
    return tmp_path / "images"


def rows_of(name: str, source: Path, images: Path, **options):
    """Captions by file name, and the rows of regions without their paths."""
    output = source.parent / "out.jsonl"
    import_captions(name, source, output, images=images, **options)
    captions = {Path(row["path"]).name: row["caption"] for row in json_lines(output)}
    return captions, [
        {key: value for key, value in row.items() if key != "path"}
        for row in json_lines(regions_file(output))
    ]


def built(source: Path, images: Path, *settings: str) -> Dataset:
    output = source.parent / "out.jsonl"
    run_build(
        images, source.parent / "dataset", recipe="provided", captions=output,
        regions=regions_file(output), overrides=settings,
    )  # fmt: skip
    return Dataset(str(source.parent / "dataset"))


def test_finehard(tmp_path, images):
    entry = {
        "f_path": "1.jpg", "caption": CAPTION, "short_caption": "Guys.",
        "bbox_info": [
            {"bbox": [0.0, 0.1, 0.5, 1.0, 0.75], "short_expr": "Two guys",
             "long_expr": "Two guys with shaggy hair", "flag_short_neg": 0},
            {"bbox": [0.5, 0.5, 0.75, 1.0], "short_expr": "a pug", "long_expr": "a small pug"},
        ],
    }  # fmt: skip
    (tmp_path / "jsonfiles").mkdir()
    (tmp_path / "jsonfiles" / "a.json").write_text(json.dumps([entry]))
    captions, rows = rows_of("finehard", tmp_path / "jsonfiles", images)
    assert captions == {"1.jpg": f"{CAPTION} a small pug."}
    assert rows == [
        {"box_xyxyn": [0.0, 0.1, 0.5, 1.0], "score": 0.75, "phrases": [[0, 25], [0, 8]]},
        {"box_xyxyn": [0.5, 0.5, 0.75, 1.0], "sentences": [[41, 52]]},
    ]
    [row] = built(tmp_path / "jsonfiles", images, "ground.enabled=true")
    assert [phrase["text"] for phrase in row.extra["phrases"]] == [
        "Two guys", "Two guys with shaggy hair",
    ]  # fmt: skip
    assert row.regions[0].box.xyxy == (24, 20, 36, 40)
    assert [row.sentences[pair.sentence].text for pair in row.pairs if not pair.global_wins] == [
        "a small pug."
    ]


def test_grit(tmp_path, images):
    span = [0.0, 8.0, 0.25, 0.5, 1.0, 1.0, 0.875]
    row = {"key": "000000001", "caption": CAPTION, "noun_chunks": [span],
           "ref_exps": [[0.0, 25.0, *span[2:]]]}  # fmt: skip
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "00000.parquet")
    captions, rows = rows_of("grit", tmp_path / "00000.parquet", images)
    assert captions == {"000000001.jpg": CAPTION}
    assert rows == [
        {"box_xyxyn": [0.25, 0.5, 1.0, 1.0], "score": 0.875, "phrases": [[0, 8], [0, 25]]}
    ]


def test_odvg_and_grounding_cap(tmp_path, images):
    first = {
        "filename": "1.jpg", "height": 40, "width": 48,
        "grounding": {"caption": " two guys look at a dog ", "regions": [
            {"bbox": [[1, 2, 9, 9], [-3, 2, 20, 41]], "phrase": "two guys",
             "tokens_positive": [[1, 9]]},
            {"bbox": [30, 2, 40, 9], "phrase": "a dog"},
            {"bbox": [48, 2, 60, 9], "phrase": "a dog"},
        ]},
        "conversations": [{"from": "human", "value": "?"}, {"from": "gpt", "value": CAPTION}],
    }  # fmt: skip
    second = {
        "file_name": "2.jpg", "height": 40, "width": 48,
        "detection": {"instances": [{"bbox": [1, 2, 9, 9], "label": 3, "category": "dog"}]},
        "conversations": [{"value": "?"}, {"value": CAPTION}],
    }  # fmt: skip
    source = lines(tmp_path / "vg.jsonl", [first, second])
    captions, rows = rows_of("odvg", source, images)
    assert captions == {"1.jpg": f"two guys look at a dog. {CAPTION}", "2.jpg": CAPTION}
    assert rows == [
        {"box_xyxy": [1, 2, 9, 9], "phrases": [[0, 8]]},
        {"box_xyxy": [0, 2, 20, 40], "phrases": [[0, 8]]},
        {"box_xyxy": [30, 2, 40, 9], "phrases": [[17, 22]]},
        {"box_xyxy": [1, 2, 9, 9], "label": "dog"},
    ]
    done = CliRunner().invoke(
        app,
        ["import", str(source), "--format", "odvg", "--images", str(images), "--quiet",
         "-o", str(tmp_path / "my set.jsonl")],
    )  # fmt: skip
    assert "4 boxes: " in done.output
    assert ", 1 cut at the edge of their image, 1 empty ones left out" in done.output
    assert f"next: glit build {images} -o 'my set-dataset' -r provided --captions" in done.output
    assert done.output.rstrip().endswith(".regions.jsonl' --set ground.enabled=true")


def test_flickr30k_entities(tmp_path, images):
    for folder in ("Annotations", "Sentences"):
        (tmp_path / "flickr" / folder).mkdir(parents=True)
    objects = (
        "<object><name>7</name><name>9</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>20</xmax>"
        "<ymax>40</ymax></bndbox></object><object><name>8</name><nobndbox>1</nobndbox></object>"
    )
    (tmp_path / "flickr" / "Annotations" / "1.xml").write_text(
        "<annotation><filename>1.jpg</filename><size><width>48</width><height>40</height>"
        f"<depth>3</depth></size>{objects}</annotation>"
    )
    (tmp_path / "flickr" / "Sentences" / "1.txt").write_text(
        "[/EN#7/people Two guys] with [/EN#8/bodyparts shaggy hair] .\n"
        "[/EN#9/people/other Men] stand .\n"
    )
    (tmp_path / "flickr" / "train.txt").write_text("1\n")
    (tmp_path / "flickr" / "test.txt").write_text("2\n")
    captions, rows = rows_of("flickr30k-entities", tmp_path / "flickr", images, split="train")
    assert captions == {"1.jpg": "Two guys with shaggy hair . Men stand ."}
    assert rows == [{"box_xyxy": [0, 1, 20, 40], "phrases": [[0, 8], [28, 31]]}]


def refs(folder: Path) -> Path:
    folder.mkdir()
    instances = {
        "images": [{"id": 5, "file_name": "1.jpg", "width": 48, "height": 40}],
        "annotations": [
            {"id": 11, "image_id": 5, "bbox": [1, 2, 8, 7], "category_id": 1},
            {"id": 12, "image_id": 5, "bbox": [20, 2, 8, 7], "category_id": 1},
        ],
        "categories": [{"id": 1, "name": "person"}],
    }
    (folder / "instances.json").write_text(json.dumps(instances))
    found = [
        {"ref_id": 2, "image_id": 5, "ann_id": 12, "split": "train",
         "sentences": [{"sent": "right man", "raw": "Right man", "sent_id": 1}]},
        {"ref_id": 1, "image_id": 5, "ann_id": 11, "split": "train",
         "sentences": [{"sent": "man", "sent_id": 2}, {"sent": "left man", "sent_id": 3}]},
        {"ref_id": 3, "image_id": 5, "ann_id": 11, "split": "val",
         "sentences": [{"sent": "him", "sent_id": 4}]},
    ]  # fmt: skip
    (folder / "refs(unc).p").write_bytes(pickle.dumps(found))
    return folder / "refs(unc).p"


def test_refcoco(tmp_path, images):
    captions, rows = rows_of("refcoco", refs(tmp_path / "refcoco"), images, split="train")
    assert captions == {"1.jpg": "man. left man. right man."}
    assert rows == [
        {"box_xyxy": [1, 2, 9, 9], "label": "person", "sentences": [[0, 3], [5, 13]]},
        {"box_xyxy": [20, 2, 28, 9], "label": "person", "sentences": [[15, 24]]},
    ]


class Harmful:
    def __reduce__(self):
        return os.getcwd, ()


def test_a_pickle_that_could_run_programs_is_refused(tmp_path, images, capsys):
    file = refs(tmp_path / "refcoco")
    file.write_bytes(pickle.dumps([Harmful()]))
    with pytest.raises(InputError, match="getcwd, which RefCOCO's files do not"):
        rows_of("refcoco", file, images)
    assert capsys.readouterr().out == ""


def test_visual_genome(tmp_path, images):
    regions = [
        {"region_id": 1, "image_id": 1, "x": 1, "y": 2, "width": 8, "height": 7, "phrase": "a cat"},
        {"region_id": 2, "image_id": 1, "x": 40, "y": 2, "width": 30, "height": 7,
         "phrase": "The clock is green. "},
        {"region_id": 3, "image_id": 1, "x": 4, "y": 2, "width": 0, "height": 7, "phrase": "x"},
    ]  # fmt: skip
    source = tmp_path / "region_descriptions.json"
    source.write_text(json.dumps([{"id": 1, "regions": regions}]))
    captions, rows = rows_of("visual-genome", source, images)
    assert captions == {"1.jpg": "a cat. The clock is green. x."}
    assert rows == [
        {"box_xyxy": [1, 2, 9, 9], "sentences": [[0, 5]]},
        {"box_xyxy": [40, 2, 48, 9], "sentences": [[7, 26]]},
    ]
    [row] = built(source, images)
    by_sentence = {row.sentences[p.sentence].text: p.region for p in row.pairs if not p.global_wins}
    boxes = {text: row.regions[region].box.xyxy for text, region in by_sentence.items()}
    assert boxes == {"a cat.": (1, 2, 9, 9), "The clock is green.": (40, 2, 48, 9)}


@pytest.mark.parametrize(
    ("name", "content"),
    [("odvg", "[]"), ("visual-genome", "{}"), ("finehard", '[{"caption": "A."}]'), ("mdetr", "{}")],
)
def test_other_files_are_refused_in_one_line(tmp_path, images, name, content):
    (tmp_path / "file.json").write_text(content)
    with pytest.raises(
        InputError, match=f"not the {name} annotations as published|none of 1 entries can be right"
    ):
        rows_of(name, tmp_path / "file.json", images)
    assert not (tmp_path / "out.jsonl").exists()
    assert not (tmp_path / "out.regions.jsonl").exists()


@pytest.fixture(scope="module")
def grounded(scenes, tmp_path_factory) -> Dataset:
    folder = tmp_path_factory.mktemp("grounded") / "dataset"
    run_build(
        scenes / "images", folder, captions=scenes / "captions.jsonl",
        overrides=["ground.enabled=true", "ground.model=mini-grounder"],
    )  # fmt: skip
    return Dataset(str(folder))


@pytest.mark.parametrize(
    ("to", "form"), [("mdetr", "mdetr"), ("grit", "grit"), ("odvg", "odvg"), ("odvg", "tao")]
)
def test_what_is_exported_comes_back_the_same(grounded, tmp_path, to, form):
    glit.export(grounded.path, to=to, output=tmp_path / to)
    names = {"mdetr": "annotations.json", "grit": "grit-00000.parquet", "odvg": "annotations.jsonl"}
    source, output = tmp_path / to / names[to], tmp_path / "out.jsonl"
    import_captions(form, source, output, images=None)
    run_build(
        tmp_path / to / "images", tmp_path / "back", recipe="provided", captions=output,
        regions=regions_file(output), overrides=["ground.enabled=true"],
    )  # fmt: skip
    back = {row.sample_id: found(row) for row in Dataset(str(tmp_path / "back"))}
    want = {row.sample_id: found(row) for row in grounded}
    assert back.keys() == want.keys()
    for name, boxes in want.items():
        extra = back[name] - boxes
        assert boxes <= back[name] and (to == "grit" or not extra)  # it has sentences besides


def test_boxes_of_images_that_mdetr_does_not_list_are_left_out_aloud(tmp_path, images):
    box = {"bbox": [1, 2, 9, 9], "tokens_positive": [[0, 8]]}
    values = {
        "images": [{"id": 1, "file_name": "1.jpg", "caption": CAPTION, "width": 48, "height": 40}],
        "annotations": [{**box, "image_id": key, "id": key} for key in (1, 2)],
    }
    (tmp_path / "final.json").write_text(json.dumps(values))
    listed = list(FORMATS["mdetr"].read(tmp_path / "final.json", images, None))
    assert [(len(each.rows), each.fault) for each in listed] == [
        (1, ""), (0, "no image has the id 2 (1 annotations)"),
    ]  # fmt: skip


def found(row) -> set:
    """The phrases of a row, and the box of each."""
    phrases = row.extra["phrases"]
    return {
        (phrases[each["phrase"]]["char_start"], phrases[each["phrase"]]["text"])
        + tuple(round(edge, 2) for edge in row.regions[each["region"]].box.xyxy)
        for each in row.extra["groundings"]
    }
