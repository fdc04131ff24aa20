"""A build says how many images' boxes it moved, as the user's file states other sizes."""

from __future__ import annotations

import json

from adding import Notes
from building import png, run_build
from PIL import Image


def test_boxes_of_other_sizes_are_said_by_how_they_moved(tmp_path):
    images, lines, captions = tmp_path / "[images]", [], []
    images.mkdir()
    for number, (stated, orientation) in enumerate(
        [((48, 40), 1), ((96, 80), 1), ((24, 20), 1), ((48, 40), 6), (None, 1)]
    ):
        file = images / f"{number}.png"
        file.write_bytes(png(size=(48, 40), seed=number))
        if orientation > 1:
            exif = Image.Exif()
            exif[0x0112] = orientation
            Image.open(file).save(file, exif=exif)
        size = {} if stated is None else dict(zip(("width", "height"), stated, strict=True))
        box = [0, 0, 20, 20] if stated == (24, 20) else [1, 1, 30, 30]
        row = {"path": file.name, "box_xyxy": box, "sentences": ["It is red."], **size}
        lines += [row, {**row, "box_xyxy": [2, 2, 19, 19]}]
        captions.append({"path": file.name, "caption": "It is red. It stands."})
    for name, rows in (("r.jsonl", lines), ("c.jsonl", captions)):
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
    notes = Notes()
    run_build(
        images, tmp_path / "[out]", recipe="provided", captions=tmp_path / "c.jsonl",
        regions=tmp_path / "r.jsonl", progress=notes,
    )  # fmt: skip
    said = next(note for note in notes.told if note.startswith("r.jsonl: images whose boxes were"))
    assert "boxes were scaled: 2 (" in said and "first: 1.png)" in said
    assert "boxes were turned: 1 (" in said and "first: 3.png)" in said
