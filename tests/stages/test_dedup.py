"""Images that repeat others, exactly or nearly."""

from __future__ import annotations

import pyarrow.parquet as pq
from building import counts, png, run_build


def test_duplicates_are_kept_once_and_named(tmp_path):
    images = tmp_path / "in"
    images.mkdir()
    for name, seed in (("a.png", 1), ("b.png", 1), ("c.png", 2), ("z.png", 1)):
        (images / name).write_bytes(png(seed=seed))
        (images / name).with_suffix(".txt").write_text("A thing.")
    overrides = ["caption.backend=sidecar", "ingest.chunk_size=2"]
    manifest = run_build(images, tmp_path / "out", overrides=overrides)
    assert counts(manifest) == (4, 2, 0, 2)
    rows = pq.read_table(tmp_path / "out" / "duplicates.parquet").to_pylist()
    assert [(r["source_path"], r["kept_path"]) for r in rows] == [
        ("b.png", "a.png"),
        ("z.png", "a.png"),
    ]


def test_near_duplicates_when_asked_for(scenes, tmp_path):
    from PIL import Image

    images = tmp_path / "in"
    images.mkdir()
    for number in (0, 1):
        picture = Image.open(scenes / "images" / f"{number:06d}.png").convert("RGB")
        picture.save(images / f"{number}.png")
        picture.save(images / f"{number}-again.jpg", quality=90)
    for path in list(images.iterdir()):
        path.with_suffix(".txt").write_text("A thing.")
    base = ["caption.backend=sidecar"]
    assert counts(run_build(images, tmp_path / "a", overrides=base)) == (4, 4, 0, 0)
    near = run_build(images, tmp_path / "b", overrides=[*base, "ingest.near_duplicates=4"])
    assert counts(near) == (4, 2, 0, 2)
