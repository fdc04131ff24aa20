"""Several captions an image, brought in a file."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from building import Counting, counts, noise, png, quiet, run_build

import glit
from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import InputError, RecipeError, UserError
from glit.pipeline.add import add
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.planning.recipe import load_recipe
from glit.pipeline.retry import retry

LONG = "A red circle on the left. A blue square on the right."


def lines(file, rows):
    file.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    return file


def captions_of(dataset):
    table = Dataset(str(dataset)).table(["source_path", "caption", "captions"])
    return {row.pop("source_path"): row for row in table.to_pylist()}


def provided(**texts):
    return [{"kind": k, "text": text, "source": "provided"} for k, text in texts.items()]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return noise(tmp_path_factory.mktemp("several") / "images", 4)


def test_rows_of_kinds(images, tmp_path):
    rows = [
        {"path": "0.png", "kind": "short", "caption": "A circle."},
        {"path": "0.png", "kind": "long", "caption": LONG},
        {"path": "0.png", "kind": "web-2", "caption": "Cafe\u0301."},
        {"path": "1.png", "caption": LONG},
        {"path": "1.png", "kind": "short", "caption": " "},
        {"path": "2.png", "kind": "short", "caption": "Only short."},
        {"path": "3.png", "kind": "long", "caption": LONG},
        {"path": "3.png", "kind": "short", "caption": "One."},
        {"path": "3.png", "kind": "short", "caption": "Another."},
    ]
    manifest = run_build(images, tmp_path / "out", captions=lines(tmp_path / "c.jsonl", rows))
    assert captions_of(tmp_path / "out") == {
        "0.png": {
            "caption": LONG,
            "captions": provided(long=LONG, short="A circle.", **{"web-2": "Caf\u00e9."}),
        },
        "1.png": {"caption": LONG, "captions": provided(long=LONG)},
    }
    assert counts(manifest) == (4, 2, 2, 0)
    said = Dataset(str(tmp_path / "out")).drops().to_pylist()
    assert [(row["source_path"], row["reason"], row["message"]) for row in said] == [
        ("2.png", "no_caption", "c.jsonl has no caption of the kind 'long' for 2.png"),
        (
            "3.png",
            "ambiguous_caption",
            "c.jsonl has 2 different captions of the kind 'short' (rows 8, 9)",
        ),
    ]
    assert manifest.recipe.tables["caption"]["kinds"] == ["long", "short", "web-2"]
    assert list(verify(str(tmp_path / "out"))) == []


def test_columns_of_kinds_and_coco_give_the_same_texts(images, tmp_path):
    wide = [
        {"path": f"{n}.png", "caption": f"{LONG} {n}.", "short_caption": f"Short {n}."}
        for n in range(4)
    ]
    run_build(images, tmp_path / "wide", captions=lines(tmp_path / "wide.jsonl", wide))
    assert captions_of(tmp_path / "wide")["2.png"] == {
        "caption": f"{LONG} 2.",
        "captions": provided(long=f"{LONG} 2.", short="Short 2."),
    }
    coco = {
        "images": [{"id": 10 + n, "file_name": f"{n}.png"} for n in range(4)],
        "annotations": [
            {"id": k * 4 + n, "image_id": 10 + n, "caption": f"Text {k} of {n}."}
            for k in range(2)
            for n in range(4)
        ],
    }
    file = tmp_path / "coco.json"
    file.write_text(json.dumps(coco))
    run_build(images, tmp_path / "coco", captions=file)
    assert captions_of(tmp_path / "coco")["3.png"] == {
        "caption": "Text 0 of 3.",
        "captions": provided(**{"caption-1": "Text 0 of 3.", "caption-2": "Text 1 of 3."}),
    }


def test_chosen_kinds(images, tmp_path):
    rows = [{"path": f"{n}.png", "caption": LONG, "short_caption": "Short."} for n in range(4)]
    file = lines(tmp_path / "c.jsonl", rows)
    run_build(images, tmp_path / "out", captions=file, overrides=['caption.kinds=["short"]'])
    assert captions_of(tmp_path / "out")["0.png"] == {
        "caption": "Short.",
        "captions": provided(short="Short."),
    }
    with pytest.raises(InputError, match="'other', the file has those of the kinds long, short"):
        run_build(images, tmp_path / "no", captions=file, overrides=['caption.kinds=["other"]'])
    with pytest.raises(RecipeError, match="has one caption an image"):
        load_recipe("mini", overrides=["caption.backend=sidecar", 'caption.kinds=["long"]'])
    with pytest.raises(RecipeError, match="want different names"):
        load_recipe("mini", overrides=['caption.kinds=["a b"]'])


def test_one_caption_an_image_keeps_its_schema(images, tmp_path):
    plain = [{"path": f"{n}.png", "caption": f"{LONG} {n}."} for n in range(4)]
    kinds = [{**row, "kind": "short" if n % 2 else "photo"} for n, row in enumerate(plain)]
    run_build(images, tmp_path / "a", captions=lines(tmp_path / "c.jsonl", plain))
    run_build(images, tmp_path / "b", captions=lines(tmp_path / "c2.jsonl", kinds))
    a, b = (
        [pq.read_table(file) for file in sorted((tmp_path / name / "data").iterdir())]
        for name in "ab"
    )
    assert "captions" not in a[0].schema.names
    assert [t.drop_columns("caption_source") for t in a] == [
        t.drop_columns("caption_source") for t in b
    ]


@pytest.mark.slow
def test_a_stopped_build_gives_the_same_bytes(images, tmp_path):
    rows = [{"path": f"{n}.png", "caption": LONG, "short_caption": f"Nr {n}."} for n in range(4)]
    file = lines(tmp_path / "c.jsonl", rows)
    small = ["ingest.chunk_size=1"]
    whole = run_build(images, tmp_path / "a", captions=file, overrides=small)
    with pytest.raises(KeyboardInterrupt):
        run_build(
            images, tmp_path / "b", captions=file, overrides=small, executor=Counting(stop_after=6)
        )
    again = run_build(images, tmp_path / "b", captions=file, overrides=small)
    assert again.files == whole.files
    rows[1]["short_caption"] = "Changed."
    counting = Counting()
    run_build(
        images, tmp_path / "b", captions=lines(file, rows), overrides=small, executor=counting,
        replace=True,
    )  # fmt: skip
    assert counting.stages["caption"] == 1, "only the image whose short caption changed"
    assert captions_of(tmp_path / "b")["1.png"]["captions"][1]["text"] == "Changed."


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"path": "0.png", "caption": "A.", "kind": "a b"}], "of the kind 'a b', want letters"),
        ([{"path": "0.png", "caption": "A.", "kind": 3}], "has kind = '3'"),
        ([{"path": "0.png", "caption": "A.", "short_caption": ["x"]}], "has short_caption = "),
        ([{"path": "0.png", "kind": "short"}], "want one of caption, text"),
    ],
)
def test_what_is_refused(images, tmp_path, rows, said):
    with pytest.raises(InputError, match=said):
        run_build(images, tmp_path / "out", captions=lines(tmp_path / "c.jsonl", rows))


def test_a_file_that_is_not_coco(images, tmp_path):
    file = tmp_path / "c.json"
    file.write_text('{"images": []}')
    with pytest.raises(InputError, match="not COCO's JSON of captions"):
        run_build(images, tmp_path / "out", captions=file)


def test_additions_retries_and_new_pairs_keep_the_column(tmp_path):
    images = noise(tmp_path / "images", 4)
    rows = [{"path": f"{n}.png", "caption": LONG, "short_caption": f"Nr {n}."} for n in range(5)]
    file = lines(tmp_path / "c.jsonl", [row for row in rows if row["path"] != "1.png"])
    out = tmp_path / "out"
    run_build(images, out, captions=file)
    (images / "4.png").write_bytes(png(seed=4))
    add(str(out), LocalExecutor(), quiet())
    with pytest.raises(UserError, match="which columns the dataset has"):
        retry(str(out), LocalExecutor(), quiet(), settings=['caption.kinds=["long"]'])
    lines(file, rows)
    retry(str(out), LocalExecutor(), quiet())
    wanted = {
        f"{n}.png": {"caption": LONG, "captions": provided(long=LONG, short=f"Nr {n}.")}
        for n in range(5)
    }
    assert captions_of(out) == wanted and list(verify(str(out))) == []
    glit.pair(out, tmp_path / "again", settings=["pair.rule=centred"])
    assert captions_of(tmp_path / "again") == wanted
    assert list(verify(str(tmp_path / "again"))) == []
