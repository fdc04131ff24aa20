"""CSV files lose no text: rows that are not certain are refused by their number."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pandas import read_csv  # an independent reader

from glit.errors import InputError
from glit.inputs.csv_rows import csv_rows
from glit.inputs.published.user_regions import read_regions
from glit.inputs.source import find_source
from glit.inputs.user_captions import prepare, read_captions
from glit.storage.store import Store


def rows(text: str):
    stream = io.StringIO(text, newline="")
    return list(csv_rows(stream, "a.csv", is_known={"path", "caption"}.__contains__))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,caption\na.png,A dog, a ball\n", r"a\.csv: row 2 has 3 fields, the header has 2"),
        ("path,caption\na.png,A dog\nb.png\n", "row 3 has 1 fields"),
        ('path,caption\na.png,"A dog\nb.png,"A cat." It.\n', "after row 1 .* a quote left open"),
        ('path,caption\na.png,"A dog\n', "a quote left open"),
        (
            'path,caption\na.png,"A dog\nb.png,5"\n',
            "row 2 takes in the row that begins with 'b.png",
        ),
        ('path,caption\na.png,"A \\"red\\" dog"\n', "not valid CSV after row 1"),
        ("path,caption,caption\na,b,c\n", "has two columns 'caption'"),
        ("path,caption\na.png,A\0dog\n", "row 2 holds a NUL byte"),
        ("path;caption\na.png;A dog; a ball\n", "a semicolon or a line break in double quotes"),
    ],
)
def test_what_may_have_lost_text_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        rows(text)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_separators_and_line_ends(delimiter, end):
    header, long = delimiter.join(["path", "caption"]), '"A, b; c\td ""e"""'
    text = end.join([header, f"a.png{delimiter}{long}", "", f'b.png{delimiter}5" of snow', ""])
    found = rows(text)
    assert found == [
        (2, {"path": "a.png", "caption": 'A, b; c\td "e"'}),
        (3, {"path": "b.png", "caption": '5" of snow'}),
    ]
    judge = read_csv(io.StringIO(text.replace("\r\n", "\n").replace("\r", "\n")), sep=delimiter)
    assert [row for _, row in found] == judge.to_dict("records")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("line", ["sep={}", '"sep={}"', "SEP={}"])
def test_the_first_line_of_excel_names_the_separator(tmp_path, delimiter, end, line):
    text = end.join(
        [line.format(delimiter), f"path{delimiter}caption", f"a.png{delimiter}A dog.", ""]
    )
    assert rows(text) == [(2, {"path": "a.png", "caption": "A dog."})]
    file = written(tmp_path, "c.csv", text)
    assert list(read_captions(file, str(tmp_path))) == [("a.png", "A dog.", 2, None)]


def test_a_row_after_the_separator_of_excel_is_checked_too():
    with pytest.raises(InputError, match=r"row 2 has 3 fields.* holds '\|' or a line break"):
        rows("sep=|\npath|caption\na.png|A|B\n")
    with pytest.raises(InputError, match="takes in the row that begins with 'b.png|'"):
        rows('sep=|\npath|caption\na.png|"A dog\nb.png|5"\n')


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("Path;caption", r"has the columns Path, caption; want one of path, .*\(lower case\)"),
        ("path,CAPTION", r"has the columns .*want one of caption, .*\(lower case\)"),
        ("where,caption", r"want one of path, file_name, filename, image, source_path$"),
    ],
)
def test_names_in_capitals_are_said_to_be_wanted_in_lower_case(tmp_path, header, message):
    text = f"{header}\na.png{';' if ';' in header else ','}A dog.\n"
    with pytest.raises(InputError, match=message):
        list(read_captions(written(tmp_path, "c.csv", text), str(tmp_path)))


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_another_encoding_is_refused_with_the_way_to_mend_it(tmp_path, encoding):
    file = tmp_path / "c.csv"
    file.write_bytes("path,caption\na.png,A café.\n".encode(encoding))
    with pytest.raises(InputError, match=r"not valid CSV in UTF-8 .*save it as CSV UTF-8"):
        list(read_captions(file, str(tmp_path)))


def test_a_caption_of_several_lines_and_a_space_after_commas():
    assert rows('path, caption\na.png, "One.\nTwo, three."\n') == [
        (2, {"path": "a.png", "caption": "One.\nTwo, three."})
    ]


def written(tmp_path: Path, name: str, text: str) -> Path:
    (tmp_path / "a.png").touch()
    (tmp_path / name).write_bytes(text.encode("utf-8-sig"))
    return tmp_path / name


@pytest.mark.parametrize("name", ["c.csv", "c.tsv"])
def test_captions_and_regions_are_read_so(tmp_path, name):
    file = written(tmp_path, name, "image\tcaption\na.png\tA dog, a ball\n")
    assert list(read_captions(file, str(tmp_path))) == [("a.png", "A dog, a ball", 2, None)]
    file = written(tmp_path, f"r{name}", "path;box_xyxy;label\na.png;1 2 3 4;cat, grey\n")
    [(path, region, number)] = read_regions(file, str(tmp_path))
    assert (path, number) == ("a.png", 2) and '"cat, grey"' in region
    with pytest.raises(InputError, match="row 2 has 3 fields, the header has 2"):
        list(read_captions(written(tmp_path, name, "path,caption\na.png,A, b\n"), str(tmp_path)))


@pytest.mark.parametrize("cell", ["nan", "NaN", "None", "NULL", "<NA>", " nan "])
def test_empty_cells_that_became_text(tmp_path, cell):
    text = f'path,caption,short_caption\na.png,"{cell}","{cell}"\nb.png,Nan bread.,\n'
    found = list(read_captions(written(tmp_path, "c.csv", text), str(tmp_path)))
    assert found == [("a.png", "", 2, None), ("b.png", "Nan bread.", 3, None)]
    text = f"path,box_xyxy,label,score,sentences\na.png,1 2 3 4,{cell},{cell},{cell}\n"
    [(_, region, _)] = read_regions(written(tmp_path, "r.csv", text), str(tmp_path))
    assert region == '{"box_xyxy": [1.0, 2.0, 3.0, 4.0]}'


def test_lists_of_images(tmp_path):
    from glit.inputs.source import entries

    for name, text in {
        "l.csv": 'label;path\r"x;y";a.png\r',
        "l.txt": "a.png\rb.png\r",
        "m.csv": "path,label\na.png,1\n",
    }.items():
        (tmp_path / "b.png").touch()
        found = [each.path for each in entries(find_source(str(written(tmp_path, name, text))))]
        assert found == (["a.png", "b.png"] if name == "l.txt" else ["a.png"])
    for name, text in {"l.csv": "path,x\na.png,1,2\n", "l.txt": "a\0.png\n"}.items():
        with pytest.raises(InputError, match="row 2 has 3 fields|line 1 holds a NUL"):
            list(entries(find_source(str(written(tmp_path, name, text)))))


def test_a_list_with_path_in_capitals(tmp_path):
    from glit.inputs.source import entries

    with pytest.raises(InputError, match=r"columns Path, want one named 'path' \(lower case\)"):
        list(entries(find_source(str(written(tmp_path, "l.csv", "Path\na.png\n")))))
    assert [
        each.path
        for each in entries(
            find_source(str(written(tmp_path, "m.csv", "sep=;\npath;x\na.png;1\n")))
        )
    ] == ["a.png"]


def test_json_that_is_too_deep_or_too_long(tmp_path):
    for text in ("[" * 100_000, '{"path": ' + "9" * 5000 + "}"):
        file = written(tmp_path, "c.jsonl", f'{{"path": "a.png", "caption": "A."}}\n{text}')
        with pytest.raises(InputError, match=r"c\.jsonl: not valid JSON lines in UTF-8, at row 2"):
            list(read_captions(file, str(tmp_path)))


def test_a_table_that_spark_wrote_as_a_folder(tmp_path):
    folder = tmp_path / "captions.parquet"
    folder.mkdir()
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / name).touch()
    for part, names in enumerate([["b.png", "a.png"], ["c.png"]]):
        table = pa.table({"path": names, "caption": pa.array(names).dictionary_encode()})
        pq.write_table(table, folder / f"part-0000{part}-x.snappy.parquet")
    (folder / "_SUCCESS").touch()
    (folder / ".part-00000.crc").touch()
    assert [row[:3] for row in read_captions(folder, str(tmp_path))] == [
        ("b.png", "b.png", 1), ("a.png", "a.png", 2), ("c.png", "c.png", 3),
    ]  # fmt: skip
    with prepared(tmp_path, folder) as first:
        pass
    pq.write_table(pa.table({"path": ["c.png"], "caption": ["C."]}), folder / "part-1.parquet")
    with prepared(tmp_path, folder) as second:
        assert first != second
    (folder / "notes.txt").touch()
    with pytest.raises(InputError, match="want files of one kind"):
        list(read_captions(folder, str(tmp_path)))
    (folder / "_temporary").mkdir()
    with pytest.raises(InputError, match="its writer has not finished"):
        list(read_captions(folder, str(tmp_path)))


@contextlib.contextmanager
def prepared(tmp_path: Path, captions: Path):
    work = Store(str(tmp_path / "work"))
    yield prepare(str(captions), image_root=str(tmp_path), work=work).table


def test_prose_in_a_second_line_is_no_row(tmp_path):
    text = 'path,caption\na.jpg,"A list.\nIt lists img1.jpg, img2.jpg"\n'
    (tmp_path / "c.csv").write_text(text)
    [(path, caption, _, _)] = read_captions(tmp_path / "c.csv", str(tmp_path))
    assert (path, caption) == ("a.jpg", "A list.\nIt lists img1.jpg, img2.jpg")


@pytest.mark.parametrize(
    ("header", "wants"),
    [
        ("filename_,description", "want one of path, .* and one of caption, text"),
        ("filename,description", "want one of caption, text"),
        ("where,caption", "want one of path, file_name"),
    ],
)
def test_all_wrong_columns_are_named_at_once(tmp_path, header, wants):
    (tmp_path / "c.csv").write_text(f"{header}\na.jpg,A.\n")
    with pytest.raises(
        InputError, match=rf"c.csv: has the columns {header.replace(',', ', ')}; {wants}"
    ):
        list(read_captions(tmp_path / "c.csv", str(tmp_path)))
