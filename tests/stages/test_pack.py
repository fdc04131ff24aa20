import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from glit.stages.pack import PackConfig, cut_files


def rows(files):
    return [(p.chunk, i) for f in files for p in f.pieces for i in range(p.start, p.stop)]


@settings(max_examples=100, deadline=None)
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
