"""Images as the stages read them."""

from __future__ import annotations

import shutil

from building import png, run_build

from glit.executors.local import LocalExecutor


def test_an_image_that_changes_under_the_build_becomes_a_drop(scenes, tmp_path):
    images = tmp_path / "images"
    shutil.copytree(scenes / "images", images)
    changed = images / "000001.png"

    class Vandal(LocalExecutor):
        def run(self, task, units, on_done, *watch):
            if task.name == "propose":
                changed.write_bytes(png(seed=9))
            super().run(task, units, on_done, *watch)

    manifest = run_build(
        images, tmp_path / "out", captions=scenes / "captions.jsonl", executor=Vandal()
    )
    assert manifest["counts"]["drops"] == {"propose/image_changed": 1}
