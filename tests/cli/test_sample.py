"""``glit sample``: photographs described by hand, as a finished dataset."""

from __future__ import annotations

import json

from PIL import Image

from glit import open_dataset
from glit.dataset.verify import verify
from glit.sample import HERE, photographs

LICENCES = {"public domain", "CC0-1.0", "CC-BY-2.0", "CC-BY-4.0"}


def test_the_photographs_are_small_and_their_licences_open():
    shipped = sorted((HERE / "photographs").iterdir())
    assert [path.name for path in shipped] == sorted(each["path"] for each in photographs())
    assert sum(path.stat().st_size for path in shipped) < 3_000_000
    for each in photographs():
        assert each["licence"] in LICENCES and each["author"] and each["address"]
        with Image.open(HERE / "photographs" / each["path"]) as image:
            width, height = image.size
        for region in each["regions"]:
            x0, y0, x1, y1 = region["box"]
            assert 0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height, (each["path"], region)
            assert region["sentences"][0] in each["caption"]


def test_every_box_is_paired_with_its_sentence(sample):
    assert list(verify(str(sample / "dataset"))) == []
    told = {each["path"]: each for each in photographs()}
    for row in open_dataset(sample / "dataset"):
        boxes = {r["sentences"][0]: tuple(r["box"]) for r in told[row.source_path]["regions"]}
        assert row.caption.text == told[row.source_path]["caption"]
        assert 4 <= len(row.sentences) <= 8
        for pair in row.pairs:
            text, region = row.sentences[pair.sentence].text, row.regions[pair.region]
            assert pair.global_wins == (text not in boxes)
            assert pair.global_wins or region.box.xyxy == boxes[text]
            assert region.source == "hand"


def test_card_page_and_sources_say_that_it_was_made_by_hand(sample, tmp_path, run_glit):
    card = (sample / "dataset" / "README.md").read_text()
    assert "made by hand; no captioner, detector or matcher ran" in " ".join(card.split())
    assert "A similarity is no cosine" in card and "CLIP ViT" not in card
    croissant = (sample / "dataset" / "croissant.json").read_text()
    assert "no model; 1 where a file" in croissant and "A matcher prefers" not in croissant
    manifest = json.loads((sample / "dataset" / "manifest.json").read_text())
    assert set(manifest["models"]) == {"tokenizer"} and manifest["precision"] == {}
    sources = (sample / "README.md").read_text()
    assert all(each["author"] in sources and each["licence"] in sources for each in photographs())
    page = tmp_path / "report.html"
    assert run_glit("view", sample / "dataset", "-o", page).code == 0
    assert "made by hand" in page.read_text() and "no cosine" in page.read_text()
    assert '"pairs_from_files": true' in page.read_text().replace('":true', '": true')
    told = run_glit("explain", sample / "dataset", photographs()[0]["path"]).output
    assert "named by its file" in told and "cosine" not in told.replace("no cosine", "")


def test_it_is_queried_exported_and_learned_from(sample, tmp_path, run_glit):
    asked = "SELECT count(*) AS n FROM pairs WHERE NOT global_wins"
    done = run_glit("query", sample / "dataset", asked, "--json")
    number = sum(len(each["regions"]) for each in photographs())
    assert json.loads(done.output) == [{"n": number}]
    assert run_glit("export", sample / "dataset", "--to", "coco", "-o", tmp_path / "c").code == 0
    words = ("--set", "train.batch_size=4", "--set", "train.max_steps=1")
    refused = run_glit("train", sample / "dataset", "-o", tmp_path / "run", *words)
    assert refused.code == 2 and "its tokenizer" in refused.errors  # the mini model's, for spans
    words = (*words, "--objective", "clip")
    assert run_glit("train", sample / "dataset", "-o", tmp_path / "run", *words).code == 0


def test_writing_it_again_changes_nothing(tmp_path, run_glit):
    first = run_glit("sample", "-o", tmp_path / "out", "--quiet")
    assert first.output.startswith("12 photographs, captions and boxes made by hand:")
    before = (tmp_path / "out" / "dataset" / "manifest.json").read_bytes()
    assert run_glit("sample", "-o", tmp_path / "out", "--quiet") == first
    assert (tmp_path / "out" / "dataset" / "manifest.json").read_bytes() == before
