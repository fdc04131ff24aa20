"""A dataset with several captions an image: checked, looked at, exported, merged, corrected."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile

import pyarrow.parquet as pq
import pytest
from building import json_lines, run_build
from changed import rewrite

import glit
from glit.dataset.reader import Dataset
from glit.dataset.verify import text_faults, verify
from glit.exporters import export
from glit.review.corrections.journal import Journal, State
from glit.scenes import write_scenes
from glit.view.explain import as_text, explain
from glit.view.samples import sample


@pytest.fixture(scope="module")
def scenes_with_short(tmp_path_factory):
    folder = tmp_path_factory.mktemp("with-short")
    write_scenes(folder, num=6, seed=2_000_500, short=True)
    return folder


@pytest.fixture(scope="module")
def several(scenes_with_short, tmp_path_factory):
    output = tmp_path_factory.mktemp("several") / "dataset"
    captions = scenes_with_short / "captions.jsonl"
    run_build(scenes_with_short / "images", output, captions=captions)
    return output


def test_short_captions_of_scenes(scenes_with_short, several, tmp_path):
    told = {row["path"]: row for row in json_lines(scenes_with_short / "captions.jsonl")}
    truth = pq.read_table(scenes_with_short / "ground_truth.parquet").to_pylist()
    assert [told[row["path"]]["short_caption"] for row in truth] == [
        row["short_caption"] for row in truth
    ]
    for row in Dataset(several):
        own = told[row.source_path]
        assert row.extra["captions"] == [
            {"kind": "long", "text": own["caption"], "source": "provided"},
            {"kind": "short", "text": own["short_caption"], "source": "provided"},
        ]
    write_scenes(tmp_path, num=2, seed=2_000_500)
    assert [*json_lines(tmp_path / "captions.jsonl")[0]] == ["path", "caption"]
    assert list(verify(str(several))) == []


@pytest.mark.parametrize(
    ("captions", "said"),
    [
        ([("two words", "A.", "x")], "'two words' is no kind"),
        ([("short", " . ", "x")], "the one of the kind 'short' has no words"),
        ([("short", "B.", "x"), ("short", "C.", "x")], "2 of the kind 'short' and the source 'x'"),
        ([("short", "B.", "x"), ("short", "C.", "y")], None),
    ],
)
def test_breaches(captions, said):
    values = [("long", "A long one.", "provided"), *captions]
    row = {
        "caption": "A long one.",
        "sentences": [],
        "captions": [dict(zip(("kind", "text", "source"), each, strict=True)) for each in values],
    }
    assert list(text_faults(row, 248)) == ([f"captions: {said}"] if said else [])
    assert list(text_faults({**row, "caption": "Another."}, 248))[-1] == (
        "captions: its caption is not among them"
    )
    for others in ([], [1]):
        assert list(text_faults({"caption": "A.", "sentences": [], "captions": others}, 248)) == []


def test_verify_finds_a_breach(several, tmp_path):
    damaged = shutil.copytree(several, tmp_path / "damaged")

    def change(rows):
        rows[0]["captions"][1]["text"] = "-"

    rewrite(damaged, change)
    assert [line for line in verify(str(damaged)) if "has no words" in line]


def test_pages_and_explanations_show_them(several):
    dataset = Dataset(several)
    row = dataset[0]
    short = row.extra["captions"][1]["text"]
    assert sample(row, number=0, image="")["others"] == [["short", short]]
    told = as_text(found := explain(dataset, row.source_path))
    assert f"  long (provided): the caption\n  short (provided): {short}\n" in told
    assert found["captions"] == row.extra["captions"] and "captions" not in found["extra"]


def test_exports_carry_them(several, built, tmp_path):
    dataset = Dataset(several)
    for name in ("hf", "webdataset", "coco"):
        export(dataset, to=name, output=tmp_path / name)
    found = pq.read_table(tmp_path / "hf" / "data")
    wanted = [row.extra["captions"] for row in dataset]
    assert found["captions"].to_pylist() == wanted
    features = json.loads(found.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["captions"]["_type"] == "List"
    with tarfile.open(tmp_path / "webdataset" / "train-00000.tar") as tar:
        found = [json.load(tar.extractfile(m)) for m in tar if m.name.endswith(".json")]
    assert [each["captions"] for each in found] == wanted
    told = json.loads((tmp_path / "coco" / "captions.json").read_text())["annotations"]
    assert [each["id"] for each in told] == list(range(1, 13))
    assert [each["caption"] for each in told] == [e["text"] for all_ in wanted for e in all_]
    export(Dataset(built), to="hf", output=tmp_path / "plain")
    assert "captions" not in pq.read_table(tmp_path / "plain" / "data").schema.names


def test_coco_captions_come_back(several, tmp_path):
    export(Dataset(several), to="coco", output=tmp_path / "coco")
    images, file = tmp_path / "coco" / "images", tmp_path / "coco" / "captions.json"
    run_build(images, tmp_path / "again", captions=file)
    before = sorted([e["text"] for e in row.extra["captions"]] for row in Dataset(several))
    again = [[e["text"] for e in row.extra["captions"]] for row in Dataset(tmp_path / "again")]
    assert sorted(again) == before


def test_merge_and_select(several, built, tmp_path):
    for order, name in (([several, built], "a"), ([built, several], "b")):
        merged = glit.merge(order, tmp_path / name)
        found = {row.sample_id: row.extra["captions"] for row in Dataset(merged.path)}
        assert found == {
            **{row.sample_id: [] for row in Dataset(built)},
            **{row.sample_id: row.extra["captions"] for row in Dataset(several)},
        }
        assert list(verify(merged.path)) == []
    part = glit.select(several, tmp_path / "part", sample=3)
    parts = part if isinstance(part, list) else [part]
    dataset = Dataset(parts[0].path)
    assert all(len(row.extra["captions"]) == 2 for row in dataset) and len(dataset) == 3


def test_an_edited_caption_is_edited_in_the_list(several, tmp_path):
    dataset = Dataset(several)
    row, file = dataset[0], tmp_path / "corrections.jsonl"
    manifest = hashlib.sha256((several / "manifest.json").read_bytes()).hexdigest()
    journal = Journal(file, manifest, by="anna")
    state = State(texts={0: "This one is new."})
    journal.add(row.sample_id, state, "edit", seen=journal.of(row.sample_id)[1])
    glit.apply_corrections(several, tmp_path / "new", [file])
    made = Dataset(tmp_path / "new")[0]
    assert made.caption.text.startswith("This one is new.")
    assert made.extra["captions"] == [
        {"kind": "long", "text": made.caption.text, "source": "provided"},
        row.extra["captions"][1],
    ]
    assert list(verify(str(tmp_path / "new"))) == []


def test_card_and_statistics(several, built, run_glit):
    card = (several / "README.md").read_text()
    assert "captions of the kinds `long`, `short`" in " ".join(card.split())
    assert "several captions" not in (built / "README.md").read_text()
    code, said, _ = run_glit("stats", several, "--json")
    assert code == 0 and json.loads(said)["kinds"] == {
        "long": {"provided": 6},
        "short": {"provided": 6},
    }
    code, said, _ = run_glit("stats", several)
    assert "captions of the kind short" in said
