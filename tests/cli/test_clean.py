"""``glit clean``."""

from __future__ import annotations


def test_only_the_work_folder_goes(built_copy, run_glit):
    before = {path.name for path in built_copy.iterdir()}
    size = sum(path.stat().st_size for path in (built_copy / "work").rglob("*") if path.is_file())
    done = run_glit("clean", built_copy)
    assert done.code == 0
    assert done.output == f"{built_copy}/work removed, {size / 2**20:.1f} MB freed\n"
    assert {path.name for path in built_copy.iterdir()} == before - {"work"}


def test_an_unfinished_build_is_not_cleaned(built_copy, run_glit):
    (built_copy / "manifest.json").unlink()
    done = run_glit("clean", built_copy)
    assert done.code == 2 and "the build is not finished" in done.errors
    assert (built_copy / "work" / "state.json").is_file()
