"""Images as the stages read them."""

from __future__ import annotations

import hashlib
import threading

from building import png, run_build, with_captions_beside

from glit.data.records import Sample
from glit.images import decode
from glit.pipeline.executors.local import LocalExecutor
from glit.stages import image_source
from glit.stages.image_source import ImageSource, loaded_batches
from glit.storage.store import Store


def test_an_image_that_changes_under_the_build_becomes_a_drop(scenes, tmp_path):
    images = with_captions_beside(scenes, tmp_path / "images", 3)
    changed = images / "000001.png"

    class Vandal(LocalExecutor):
        def run_job(self, job):
            if job.task.name == "propose":
                changed.write_bytes(png(seed=9))
            super().run_job(job)

    manifest = run_build(
        images, tmp_path / "out", overrides=["caption.backend=sidecar"], executor=Vandal(),
        recipe="mini",
    )  # fmt: skip
    assert manifest.counts.drops == {"propose/image_changed": 1}


def test_decoded_pixels_in_memory_are_bounded_by_their_bytes(tmp_path, monkeypatch):
    data = png(seed=1, size=(64, 64))
    (tmp_path / "a.png").write_bytes(data)
    decoded, at_once, taken = 0, 0, 0
    lock = threading.Lock()

    def counted(data, **options):
        nonlocal decoded, at_once
        with lock:
            decoded += 1
            at_once = max(at_once, decoded - taken)
        return decode(data, **options)

    monkeypatch.setattr(image_source, "decode", counted)
    monkeypatch.setattr(image_source, "MOST_BYTES", 3 * 3 * 64 * 64)
    sample = Sample(
        sample_id=hashlib.sha256(data).hexdigest(), source_path="a.png", width=64, height=64,
        num_bytes=len(data),
    )  # fmt: skip
    sizes = []
    for batch in loaded_batches([sample] * 20, ImageSource(Store(tmp_path)), 8):
        sizes.append(len(batch))
        taken += len(batch)
    assert sizes == [3] * 6 + [2]
    assert at_once <= 3 + 3 + 1, "three that wait, three and one more in the batch"
