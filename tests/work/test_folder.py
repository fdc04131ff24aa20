"""Which tables are taken as they are when files beside the images change."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from building import Counting, run_build

from glit.dataset.verify import verify
from glit.pipeline.executors.local import LocalExecutor
from glit.scenes import write_scenes


@pytest.fixture
def with_sidecars(tmp_path):
    """Four scenes in chunks of two, masks and captions beside them."""
    write_scenes(tmp_path / "scenes", num=4, seed=2_000_000, masks=True)
    images = tmp_path / "scenes" / "images"
    for path in images.glob("*.png"):
        path.with_suffix(".txt").write_text("A red circle. A blue square.")
    return images


SIDECARS = {
    "recipe": "lism-mini",
    "overrides": ["propose.backend=sa1b", "caption.backend=sidecar", "ingest.chunk_size=2"],
}


@pytest.mark.parametrize(
    ("suffix", "redone"),
    [
        (".json", {"propose", "score", "pair"}),
        (".txt", {"caption", "split", "propose", "score", "pair"}),
    ],
)
def test_a_file_beside_an_image_redoes_what_reads_it(with_sidecars, tmp_path, suffix, redone):
    """Propose leaves out images without a caption, so it looks again, and keeps its rows."""
    run_build(with_sidecars, tmp_path / "out", **SIDECARS)
    changed = with_sidecars / f"000001{suffix}"
    changed.write_text(changed.read_text() + " ")
    again = Counting()
    run_build(with_sidecars, tmp_path / "out", executor=again, replace=True, **SIDECARS)
    assert again.stages == dict.fromkeys(redone, 1)
    assert list(verify(str(tmp_path / "out"))) == []


def test_reading_masks_from_now_on_keeps_the_captions(with_sidecars, tmp_path):
    sam = SIDECARS | {"overrides": ["propose.backend=grid", *SIDECARS["overrides"][1:]]}
    run_build(with_sidecars, tmp_path / "out", **sam)
    again = Counting()
    run_build(with_sidecars, tmp_path / "out", executor=again, replace=True, **SIDECARS)
    assert again.stages == {"propose": 2, "score": 2, "pair": 2}


def test_a_file_half_packed_is_not_taken_when_a_caption_changed_since(with_sidecars, tmp_path):
    class StopsInPack(LocalExecutor):
        def run_job(self, job):
            super().run_job(job)
            if job.task.name == "pack":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_build(with_sidecars, tmp_path / "out", executor=StopsInPack(), **SIDECARS)
    (with_sidecars / "000001.txt").write_text("A green star.")
    run_build(with_sidecars, tmp_path / "out", **SIDECARS)
    rows = pq.read_table(tmp_path / "out" / "data", columns=["caption"]).to_pylist()
    assert [row["caption"] for row in rows].count("A green star.") == 1
