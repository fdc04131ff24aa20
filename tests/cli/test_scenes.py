"""``glit scenes``."""

from __future__ import annotations

from building import json_lines


def test_what_was_asked_for_is_written(tmp_path, run_glit):
    out = tmp_path / "out"
    done = run_glit("scenes", "-o", out, "-n", 3, "--seed", 7, "--format", "jpeg", "--masks")
    assert done.code == 0
    assert done.output == (
        f"3 scenes: {out}/images, {out}/captions.jsonl, {out}/ground_truth.parquet\n"
        f"next: glit build {out}/images -o {out}/dataset -r mini\n"
    )
    names = [f"{number:06d}" for number in range(3)]
    assert sorted(path.name for path in (out / "images").iterdir()) == [
        f"{name}.{suffix}" for name in names for suffix in ("jpg", "json")
    ]
    assert [row["path"] for row in json_lines(out / "captions.jsonl")] == [
        f"{name}.jpg" for name in names
    ]


def test_a_folder_that_cannot_be_written(tmp_path, run_glit):
    (tmp_path / "file").write_text("")
    done = run_glit("scenes", "-o", tmp_path / "file" / "out", "-n", 1)
    assert done.code == 2
    assert done.errors == (
        f"glit: {tmp_path}/file/out: cannot write there (Not a directory); choose another folder "
        "with -o\n"
    )
