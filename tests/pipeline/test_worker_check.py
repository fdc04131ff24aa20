"""A machine that does not see what the build began with does nothing."""

from __future__ import annotations

import shutil

import pytest
from building import run_build

from glit.errors import RunError, WeightsError
from glit.pipeline.executors.local import LocalExecutor
from glit.recipes.resources import mini_model


class Elsewhere(LocalExecutor):
    """Proposes on a machine where something is otherwise."""

    def __init__(self, change):
        self.change = change

    def run_job(self, job):
        if job.task.name == "propose":
            self.change()
        super().run_job(job)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: (model / "preprocessor_config.json").write_text("{}"), "other weights than"),
        (shutil.rmtree, "every machine needs it there"),
    ],
    ids=["changed", "gone"],
)
def test_another_model_is_refused(scenes, tmp_path, change, message):
    model = tmp_path / "proposer"
    shutil.copytree(mini_model("proposer"), model)
    with pytest.raises(WeightsError, match=message):
        run_build(
            scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl", limit=4,
            overrides=[f"propose.model={model}"], executor=Elsewhere(lambda: change(model)), recipe="mini",
        )  # fmt: skip
    assert not list((tmp_path / "out").glob("work/propose-*/*.parquet"))


def test_a_work_folder_that_is_not_shared_is_named(scenes, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(RunError, match="does not see .*out/work as the build does"):
        run_build(
            scenes / "images", out, captions=scenes / "captions.jsonl", limit=4,
            executor=Elsewhere((out / "work" / "state.json").unlink),
        )  # fmt: skip
