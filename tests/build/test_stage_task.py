"""What a stage's task says of itself before it is opened."""

from __future__ import annotations

from glit.backends.captioners.brought import BroughtCaptions
from glit.build import stage_task
from glit.build.plan import make_plan
from glit.build.work import Work
from glit.recipe import load_recipe
from glit.storage import Store

GB = 1_000_000_000


def test_sam_needs_memory_beyond_that_of_its_weights(tmp_path):
    """MobileSAM's weights are 41 MB; with an image in work its process was seen at 1.81 GB."""
    file = tmp_path / "vit_t.pt"
    file.write_bytes(b"\0" * 41_000_000)
    recipe = load_recipe(
        "lism-mini", overrides=[f"propose.model={file}", "propose.allow_pickle=true"]
    )
    brought = BroughtCaptions(name="none", table="")
    images = Store(tmp_path)
    work = Work(store=images, images=images, plan=make_plan(recipe, device="cpu", brought=brought))
    task = stage_task.StageTask(name="propose", work=work)
    assert task.memory_bytes > 1.81 * GB
