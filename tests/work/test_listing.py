import os

import pyarrow.parquet as pq
import pytest

from glit.errors import InputError
from glit.inputs.source import entries, find_source
from glit.pipeline.work.listing import read_chunk, read_chunks, write_listing
from glit.pipeline.work.scan import gathered
from glit.storage.store import Entry, Store


def fill(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def paths(source) -> list[str]:
    return sorted(entry.path for entry in entries(source))


def test_a_folder_gives_its_images_at_any_depth(tmp_path):
    fill(tmp_path, "b.PNG", "a.jpg", "deep/er/c.webp", "notes.txt", "captions.jsonl", "noending")
    assert paths(find_source(str(tmp_path))) == ["a.jpg", "b.PNG", "deep/er/c.webp"]


def test_a_glob_gives_what_it_names(tmp_path):
    fill(tmp_path, "a/1.png", "a/2.jpg", "b/3.png", "b/c/4.png")
    assert paths(find_source(f"{tmp_path}/*/*.png")) == ["a/1.png", "b/3.png"]
    assert paths(find_source(f"{tmp_path}/**/*.png")) == ["a/1.png", "b/3.png", "b/c/4.png"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.txt", "a.png\n\nsub/b.png\na.png\n"),
        ("list.csv", "path,label\na.png,1\nsub/b.png,2\n"),
        ("list.jsonl", '{"path": "a.png"}\n{"path": "sub/b.png", "x": 1}\n'),
    ],
)
def test_list_files(tmp_path, name, text):
    fill(tmp_path, "a.png", "sub/b.png", "c.png")
    (tmp_path / name).write_text(text)
    assert paths(find_source(str(tmp_path / name))) == ["a.png", "sub/b.png"]


def test_a_list_of_absolute_paths(tmp_path):
    fill(tmp_path, "x/a.png")
    file = tmp_path / "list.txt"
    file.write_text(f"{tmp_path}/x/a.png\n")
    source = find_source(str(file))
    assert [f"/{path}" for path in paths(source)] == [f"{tmp_path}/x/a.png"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("list.csv", "file\na.png\n", "want one named 'path'"),
        ("list.jsonl", "{oops\n", "line 1"),
        ("list.txt", "../a.png\n", "outside the list's folder"),
    ],
)
def test_bad_lists_name_the_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        paths(find_source(str(tmp_path / name)))


def test_no_such_folder():
    with pytest.raises(InputError, match="no such folder"):
        find_source("nowhere/at/all")


def test_symlink_loops_end_and_broken_links_are_reported(tmp_path):
    fill(tmp_path, "real/a.png")
    (tmp_path / "real" / "loop").symlink_to(tmp_path / "real")
    (tmp_path / "gone.png").symlink_to(tmp_path / "nothing.png")
    found = {entry.path: entry.size for entry in entries(find_source(str(tmp_path)))}
    assert found == {"real/a.png": 1, "gone.png": -1}


def test_a_linked_folder_is_followed(tmp_path):
    fill(tmp_path, "elsewhere/a.png", "in/b.png")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "elsewhere")
    assert paths(find_source(str(tmp_path / "in"))) == ["b.png", "link/a.png"]


def listing_of(names, tmp_path, **options):
    found = (Entry(path=name, size=1, stamp="s") for name in names)
    target = tmp_path / "listing.parquet"
    with gathered(found, tmp_path, num_beside=0) as now:
        return write_listing(now, target, **{"chunk_size": 0, "limit": None} | options), target


def test_chunks_are_sorted_and_sized_by_the_number_of_images(tmp_path):
    names = [f"{number:05d}.png" for number in range(1000)]
    chunks, target = listing_of(reversed(names), tmp_path)
    file = pq.ParquetFile(target)
    assert [len(read_chunk(file, chunk)) for chunk in chunks] == [63] * 15 + [55]
    assert [entry.path for chunk in chunks for entry in read_chunk(file, chunk)] == names
    assert read_chunks(target) == chunks


def test_limit_takes_the_first_in_order(tmp_path):
    chunks, target = listing_of(["c", "a", "b"], tmp_path, limit=2)
    assert [entry.path for entry in read_chunk(pq.ParquetFile(target), chunks[0])] == ["a", "b"]


def test_a_changed_file_changes_only_its_chunk(tmp_path):
    names = [f"{number:03d}" for number in range(96)]
    before, _ = listing_of(names, tmp_path, chunk_size=32)
    found = (Entry(path=n, size=2 if n == "040" else 1, stamp="s") for n in names)
    with gathered(found, tmp_path, num_beside=0) as now:
        after = write_listing(now, tmp_path / "again.parquet", chunk_size=32, limit=None)
    assert [a.key == b.key for a, b in zip(before, after, strict=True)] == [True, False, True]


def test_names_that_are_not_utf8_are_kept_readable(tmp_path):
    odd = os.fsdecode(b"caf\xe9.png")
    chunks, target = listing_of([odd, 'quo"te\nline.png'], tmp_path)
    found = {e.path: e.size for e in read_chunk(pq.ParquetFile(target), chunks[0])}
    assert found == {"caf\\xe9.png": -2, 'quo"te\nline.png': 1}


def test_a_list_that_is_no_csv_is_refused_and_no_image_passed_over(tmp_path):
    fill(tmp_path, "a.png", "b.png")
    file = tmp_path / "list.csv"
    file.write_text('path,caption\na.png,"open\nb.png,x\n')
    with pytest.raises(InputError, match=r"list\.csv: not valid CSV"):
        paths(find_source(str(file)))
    file.write_text(f"path,caption\na.png,{'x' * 140_000}\nb.png,x\n")
    assert paths(find_source(str(file))) == ["a.png", "b.png"]


@pytest.mark.parametrize("output", ["", "out/"])
def test_what_a_dataset_keeps_below_the_images_is_no_input(tmp_path, output):
    fill(
        tmp_path, "a.png", "out.png", f"{output}x.png", f"{output}data/b.png", f"{output}work/c.png"
    )
    work = Store(tmp_path / output / "work")
    found = {entry.path for entry in entries(find_source(str(tmp_path)), work=work)}
    assert found == {"a.png", "out.png", f"{output}x.png"}
    other = Store(tmp_path / "elsewhere" / "work")
    assert len(list(entries(find_source(str(tmp_path)), work=other))) == 5


def test_a_name_that_is_only_bytes_is_never_that_of_another_file(tmp_path):
    names = [b"bad\xff.png", rb"bad\xff.png", b"\xff\xff.png", b"\\xff\xff.png", b"\xfe.png"]
    chunks, target = listing_of(list(map(os.fsdecode, names)), tmp_path)
    found = {e.path: e.size for e in read_chunk(pq.ParquetFile(target), chunks[0])}
    assert found == {
        r"./bad\xff.png": -2,
        r"bad\xff.png": 1,
        r"\xff\xff.png": -2,
        r"\x5cxff\xff.png": -2,
        r"\xfe.png": -2,
    }
