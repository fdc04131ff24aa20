import hashlib

import numpy as np
import pyarrow.parquet as pq
import pytest
from building import data_bytes, png, run_build
from hypothesis import given, settings
from hypothesis import strategies as st

from glit.data.records import Caption, Sample
from glit.data.rle import decode_rle, mask_text, read_rle
from glit.dataset.verify import verify
from glit.stages.pack import PackConfig, cut_files, dataset_row
from glit.storage.store import Store


def rows(files):
    return [(p.chunk, i) for f in files for p in f.pieces for i in range(p.start, p.stop)]


@settings(max_examples=100)
@given(
    st.lists(st.lists(st.integers(1, 5_000_000), max_size=12), max_size=8),
    st.integers(1, 6),
    st.integers(1, 8),
)
def test_every_sample_is_in_exactly_one_file_in_order(sizes, min_files, max_mb):
    arrays = [np.array(each, dtype=np.int64) for each in sizes]
    files = cut_files(arrays, PackConfig(min_files=min_files, max_file_mb=max_mb))
    assert rows(files) == [(c, i) for c, each in enumerate(sizes) for i in range(len(each))]
    assert all(f.total == len(files) and f.pieces for f in files)
    for file in files:
        content = [sizes[p.chunk][i] for p in file.pieces for i in range(p.start, p.stop)]
        assert len(content) == 1 or sum(content) <= (max_mb << 20)


def test_small_datasets_get_as_many_files_as_wished():
    files = cut_files([np.full(20, 1000)], PackConfig(min_files=8))
    assert len(files) == 8
    assert len(cut_files([np.full(3, 1000)], PackConfig(min_files=8))) == 3
    assert files[0].name == "train-00000-of-00008.parquet"


def test_one_image_larger_than_a_file_changes_nothing_for_the_others():
    sizes = [np.array([420_000_000, *[10_000_000] * 1000])]
    files = cut_files(sizes, PackConfig())
    assert rows(files) == [(0, i) for i in range(1001)]
    assert 25 <= len(files) <= 60


def test_image_store_path_keeps_images_out(scenes, tmp_path):
    run_build(
        scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl",
        overrides=["pack.image_store=path", "pack.min_files=2"], limit=4,
    )  # fmt: skip
    assert len(data_bytes(tmp_path / "out")) == 2
    row = pq.read_table(tmp_path / "out" / "data").to_pylist()[0]
    assert row["image"] == {"bytes": None, "path": "000000.png"}
    assert list(verify(str(tmp_path / "out"))) == []


def test_max_side_moves_boxes_with_the_pixels(scenes, built, tmp_path):
    run_build(
        scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl",
        overrides=["pack.max_side=64"], limit=4,
    )  # fmt: skip
    small, whole = (
        pq.read_table(folder / "data").to_pylist()[0] for folder in (tmp_path / "out", built)
    )
    assert (small["width"], whole["width"]) == (64, 128)
    for a, b in zip(small["regions"], whole["regions"], strict=True):
        assert [a[k] for k in ("x0", "y0", "x1", "y1")] == pytest.approx(
            [b[k] / 2 for k in ("x0", "y0", "x1", "y1")]
        )
    assert list(verify(str(tmp_path / "out"))) == []


def test_max_side_shrinks_kept_masks_with_the_pixels(tmp_path):
    data = png(size=(200, 100))
    (tmp_path / "a.png").write_bytes(data)
    mask = np.zeros((100, 200), bool)
    mask[20:60, 40:120] = True
    sample = Sample(
        sample_id=hashlib.sha256(data).hexdigest(), source_path="a.png", width=200, height=100,
        num_bytes=len(data), pairs=(), sentences=(),
        caption=Caption(text="", kind="provided", model="", revision="", prompt_sha256=""),
        extra={"masks": [{"region": 3, "counts": mask_text(mask, height=100, width=200)}]},
    )  # fmt: skip
    row = dataset_row(sample, Store(tmp_path), PackConfig(max_side=50))
    assert (row["width"], row["height"]) == (50, 25)
    [small] = row["masks"]
    assert small["region"] == 3
    size = {"height": 25, "width": 50}
    wanted = np.zeros((25, 50), bool)
    wanted[5:15, 10:30] = True
    assert np.array_equal(decode_rle(read_rle(small["counts"], **size), **size), wanted)
