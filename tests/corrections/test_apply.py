"""Corrections of every kind become a finished dataset; what cannot be is refused whole."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from building import run_build
from changed import rewrite
from transformers.utils import logging

import glit
from glit.curate import dataset_models
from glit.data.schema import CORRECTED
from glit.dataset.reader import Dataset
from glit.dataset.row import masks_of
from glit.errors import DatasetError, InputError, MissingModelError
from glit.review.corrections.journal import Journal, State
from glit.scenes import write_scenes
from glit.view.story import story

NEW = (10.0, 12.0, 60.5, 70.0)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Six hard scenes with a probability for every pair."""
    folder = tmp_path_factory.mktemp("small")
    write_scenes(folder, num=6, seed=1_000_300, level="hard")
    return glit.build(
        folder / "images", folder / "dataset", recipe="glit-mini", executor="local", quiet=True,
        captions=folder / "captions.jsonl", settings=["pair.min_probability=0"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def rich(tmp_path_factory):
    """Three scenes with masks, phrases, groundings and false sentences."""
    folder = tmp_path_factory.mktemp("rich")
    write_scenes(folder, num=3, seed=2_000_300, masks=True)
    return glit.build(
        folder / "images", folder / "dataset", recipe="lism-mini", executor="local", quiet=True,
        captions=folder / "captions.jsonl",
        settings=[
            "propose.backend=sa1b+grid", "propose.keep_masks=true", "ground.enabled=true",
            "ground.model=mini-grounder", "negatives.enabled=true",
        ],
    )  # fmt: skip


def sha256(dataset) -> str:
    return hashlib.sha256((Path(dataset.path) / "manifest.json").read_bytes()).hexdigest()


def corrected(dataset, file, states, *, by="anna"):
    """A file that says this of rows, by their numbers."""
    journal = Journal(file, sha256(dataset), by=by)
    for number, state in states.items():
        journal.add(dataset[number].sample_id, state, "note", seen=journal.of(dataset[number].sample_id)[1])  # fmt: skip
    return file


def applied(dataset, tmp_path, states, **options):
    file = corrected(dataset, tmp_path / "c.jsonl", states)
    told = glit.apply_corrections(dataset.path, tmp_path / "new", [file], **options)
    assert glit.verify(tmp_path / "new") == []
    return Dataset(tmp_path / "new"), told


def pair_of(row, sentence):
    return next(pair for pair in row.pairs if pair.sentence == sentence)


def test_rows_that_nobody_corrected_keep_their_values(small, tmp_path):
    new, told = applied(small, tmp_path, {1: State(right=True), 2: State(tags=("odd",), note="n")})
    names = list(small.schema.names)
    assert new.table(names).equals(small.table(names))
    assert new.table(["by_hand"])["by_hand"].to_pylist() == [[]] * 6
    assert new[1].extra["review"] == {"right": True, "edited": [], "tags": [], "note": ""}
    assert new[2].extra["review"] == {"right": False, "edited": [], "tags": ["odd"], "note": "n"}
    assert new.schema.names == [*names, *(name for name, _ in CORRECTED)]
    assert (told.counts["right"], told.counts["tagged"], told.counts["moved"]) == (1, 1, 0)


def test_a_moved_box_keeps_its_sentences_and_is_scored(small, tmp_path):
    row = small[0]
    region = row.pairs[0].region
    new, _ = applied(small, tmp_path, {0: State(boxes={region: NEW})})
    made = new[0]
    assert made.regions[region].box.xyxy == NEW and made.regions[region].source == "person"
    assert made.regions[region].label == row.regions[region].label
    sentences = {pair.sentence for pair in row.pairs if pair.region == region}
    for pair in made.pairs:
        before = pair_of(row, pair.sentence)
        assert (pair.region, pair.global_wins) == (before.region, before.global_wins)
        if pair.sentence in sentences:
            assert pair.similarity not in (before.similarity, 0.0)
            assert pair.probability == (0 if before.global_wins else 1)
            assert pair.support == 1
    others = [number for number in range(len(row.regions)) if number != region]
    assert np.array_equal(made.similarity[:, others], row.similarity[:, others])
    assert np.array_equal(made.image_similarity, row.image_similarity)
    assert all(each["scored"] for each in made.extra["by_hand"])
    assert sentences <= {each["sentence"] for each in made.extra["by_hand"]}


def test_a_drawn_box_a_pair_pointed_to_and_one_taken_away(small, tmp_path):
    row = small[3]
    drawn = len(row.regions)
    state = State(boxes={drawn: NEW}, pairs={0: drawn, 1: None, 2: 0})
    new, told = applied(small, tmp_path, {3: state})
    made = new[3]
    assert made.regions[drawn].box.xyxy == NEW and made.regions[drawn].score == 1
    first = made.pairs[0].sentence
    assert first in (0, 2) and pair_of(made, 0).region == drawn and pair_of(made, 2).region == 0
    assert made.pairs[-1].sentence == 1 and made.pairs[-1].global_wins
    assert (pair_of(made, 0).probability, pair_of(made, 1).probability) == (1, 0)
    decided = {each["sentence"]: each["region"] for each in made.extra["by_hand"]}
    assert {0: drawn, 1: -1, 2: 0}.items() <= decided.items()
    assert (told.counts["drawn"], told.counts["paired"]) == (1, 3)


def test_labels_are_those_of_a_person_and_a_moved_cell_of_the_grid_has_none(small, tmp_path):
    regions = small[0].regions
    centre = next(n for n, each in enumerate(regions) if each.label == "centre")
    found = next(n for n, each in enumerate(regions) if not each.is_grid)
    drawn = len(regions)
    state = State(boxes={centre: NEW, drawn: NEW}, labels={found: "a red kite", drawn: "a cloud"})
    new, told = applied(small, tmp_path, {0: state})
    after = new[0].regions
    assert [after[n].label for n in (centre, found, drawn)] == ["", "a red kite", "a cloud"]
    assert [after[n].source for n in (centre, found, drawn)] == [
        "person", regions[found].source, "person",
    ]  # fmt: skip
    assert after[found].box == regions[found].box and told.counts["labelled"] == 2
    told_of = {each["title"]: each["how"] for each in story(new.manifest)["steps"]}
    assert told_of["Corrected by hand"] == "1 of 6 samples: 1 moved, 1 drawn, 2 labelled"
    rest = [n for n in range(drawn) if n not in (centre, found)]
    assert [after[n] for n in rest] == [regions[n] for n in rest]


def test_edited_and_struck_sentences_are_split_again(small, tmp_path):
    row = small[2]
    state = State(texts={0: "A red dog sleeps. It snores."}, struck=(2, len(row.sentences) - 1))
    new, told = applied(small, tmp_path, {2: state})
    made = new[2]
    kept = [s.text for n, s in enumerate(row.sentences) if n not in (0, *state.struck)]
    assert [s.text for s in made.sentences] == ["A red dog sleeps.", "It snores.", *kept]
    assert made.caption.text == " ".join(s.text for s in made.sentences)
    old, now = pair_of(row, 0), pair_of(made, 0)
    assert (now.region, now.global_wins) == (old.region, old.global_wins)
    assert pair_of(made, 1).region == old.region
    assert made.extra["review"]["edited"] == [0, 1]
    assert np.array_equal(made.similarity[2], row.similarity[1])
    assert (told.counts["edited"], told.counts["struck"]) == (1, 2)


def test_a_deleted_box_leaves_its_sentences_without_one(small, tmp_path):
    row = small[4]
    gone = next(pair.region for pair in row.pairs if not pair.global_wins)
    new, _ = applied(small, tmp_path, {4: State(deleted=(gone,))})
    made = new[4]
    assert len(made.regions) == len(row.regions) - 1
    for pair in made.pairs:
        before = pair_of(row, pair.sentence)
        if before.region == gone or before.global_wins:
            assert pair.global_wins
        else:
            assert made.regions[pair.region] == row.regions[before.region]


def test_masks_phrases_groundings_and_negatives_follow(rich, tmp_path):
    row = rich[0]
    masked = sorted(masks_of(row))
    state = State(
        boxes={masked[0]: NEW}, deleted=(masked[1],), struck=(0,), texts={1: "A red dog."}
    )
    new, _ = applied(rich, tmp_path, {0: state})
    made = new[0]
    assert masks_of(made) == {
        number - (number > masked[1]): counts
        for number, counts in masks_of(row).items()
        if number not in masked[:2]
    }
    kept = [p for p in row.extra["phrases"] if p["sentence"] > 1]
    assert [p["text"] for p in made.extra["phrases"]] == [p["text"] for p in kept] != []
    for phrase in made.extra["phrases"]:
        span = slice(phrase["char_start"], phrase["char_end"])
        assert made.caption.text[span] == phrase["text"]
        own = made.sentences[phrase["sentence"]]
        assert own.token_start <= phrase["token_start"] < phrase["token_end"] <= own.token_end
    for each in made.extra["groundings"]:
        assert made.extra["phrases"][each["phrase"]] and each["region"] < len(made.regions)
    wanted = [(n["sentence"] - 1, n["text"]) for n in row.extra["negatives"] if n["sentence"] > 1]
    assert [(n["sentence"], n["text"]) for n in made.extra["negatives"]] == wanted != []
    assert glit.verify(tmp_path / "new") == []


def test_without_the_matcher_scores_are_not_known_and_said_so(small, tmp_path, monkeypatch):
    def missing(name, *_, **__):
        raise MissingModelError(name, reason="not on this machine", fetch="")

    row = small[3]
    drawn = len(row.regions)
    monkeypatch.setattr(dataset_models.DatasetModels, "_opened", lambda *_: missing("mini-matcher"))
    new, told = applied(small, tmp_path, {3: State(boxes={drawn: NEW}, pairs={0: drawn})})
    made = new[3]
    assert "scores of changed boxes and sentences are not known" in told.warnings[0]
    assert new.manifest.corrections[0].more["scored"] is False
    assert "mini-matcher" in told.warnings[0]
    assert pair_of(made, 0).region == drawn and pair_of(made, 0).similarity == 0
    assert not made.similarity[:, drawn].any()
    scored = {each["sentence"]: each["scored"] for each in made.extra["by_hand"]}
    assert scored == {0: False, **dict.fromkeys(range(1, len(row.sentences)), True)}
    for name in ("again", "known"):
        (tmp_path / name).mkdir()
    again, told = applied(new, tmp_path / "again", {3: State(pairs={1: drawn})})
    assert told.warnings and not any(each["scored"] for each in again[3].extra["by_hand"])
    monkeypatch.undo()
    known, told = applied(new, tmp_path / "known", {3: State(pairs={1: drawn})})
    assert not told.warnings and all(each["scored"] for each in known[3].extra["by_hand"])
    assert known[3].similarity[:, drawn].any()


def test_another_matcher_is_refused(small, tmp_path):
    file = corrected(small, tmp_path / "c.jsonl", {0: State(boxes={0: NEW})})
    with pytest.raises(InputError, match="is not the dataset's matcher 'mini-matcher'"):
        glit.apply_corrections(small.path, tmp_path / "new", [file], matcher="mini-clip")
    assert not (tmp_path / "new").exists()


def test_a_sample_of_which_nothing_is_left_is_dropped_and_counted(small, tmp_path):
    everything = tuple(range(len(small[0].sentences)))
    boxes = tuple(range(len(small[5].regions)))
    new, told = applied(small, tmp_path, {0: State(struck=everything), 5: State(deleted=boxes)})
    assert len(new) == 4 and told.dropped == 2
    counts = new.manifest.counts
    assert counts.drops == {"correct/no_sentence": 1, "correct/no_region": 1}
    assert counts.ingested == 6 == counts.shipped + counts.dropped
    assert new.drops()["sample_id"].to_pylist() == [small[0].sample_id, small[5].sample_id]
    all_gone = {n: State(struck=tuple(range(len(small[n].sentences)))) for n in range(6)}
    file = corrected(small, tmp_path / "all.jsonl", all_gone)
    with pytest.raises(InputError, match="no sample would be left"):
        glit.apply_corrections(small.path, tmp_path / "none", [file])


def test_the_manifest_and_the_card_tell_where_corrections_are_from(small, tmp_path):
    new, told = applied(small, tmp_path, {0: State(struck=(1,), right=True)})
    digest = hashlib.sha256((tmp_path / "c.jsonl").read_bytes()).hexdigest()
    (entry,) = new.manifest.corrections
    assert entry.more["files"] == [{"sha256": digest, "lines": 1, "by": ["anna"]}]
    assert (entry.manifest_sha256, entry.rows) == (sha256(small), 6)
    assert [entry.more[key] for key in ("struck", "right", "samples")] == [1, 1, 1]
    card = " ".join((tmp_path / "new" / "README.md").read_text().split())
    assert "1 of the 6 samples of dataset and corrected them (1 struck, 1 right)" in card
    before, after = small.manifest.fingerprints, new.manifest.fingerprints
    assert before["ingest"] == after["ingest"] and before["pair"] != after["pair"]
    assert told.warnings == ()


@pytest.mark.slow
def test_a_corrected_dataset_is_corrected_paired_selected_and_merged(small, tmp_path):
    drawn = len(small[3].regions)
    first, _ = applied(small, tmp_path, {3: State(boxes={drawn: NEW}, pairs={0: drawn})})
    file = corrected(first, tmp_path / "d.jsonl", {3: State(struck=(1,))}, by="ben")
    glit.apply_corrections(first.path, tmp_path / "second", [file])
    second = Dataset(tmp_path / "second")
    assert pair_of(second[3], 0).region == drawn
    assert [each.more["files"][0]["by"] for each in second.manifest.corrections] == [
        ["anna"], ["ben"],
    ]  # fmt: skip
    settings = ["pair.rule=argmax"]
    again = glit.pair(second.path, tmp_path / "again", settings=settings)
    assert pair_of(again[3], 0).region == drawn and pair_of(again[3], 0).probability is None
    parts = glit.split(again.path, tmp_path / "parts", {"a": 0.5, "b": 0.5})
    merged = glit.merge([part.path for part in parts.values()], tmp_path / "merged")
    assert len(merged.manifest.merged[0].more["corrections"]) == 2
    for order, datasets in (("x", [small, parts["a"]]), ("y", [parts["a"], small])):
        half = glit.merge([each.path for each in datasets], tmp_path / order)
        assert glit.verify(half.path) == [] and len(half) == len(small)
        by = {row.sample_id: row for row in half}
        assert sum(bool(row.extra["by_hand"]) for row in half) == (
            sum(bool(row.extra["by_hand"]) for row in parts["a"]) if order == "y" else 0
        )
        for row in datasets[0]:
            assert by[row.sample_id].pairs == row.pairs
            assert by[row.sample_id].extra["origin"]["dataset"] == Path(datasets[0].path).name
    for made in (second, again, *parts.values(), merged):
        assert glit.verify(made.path) == []


def test_verify_finds_a_pair_that_neither_the_rule_nor_a_person_made(small, tmp_path):
    applied(small, tmp_path, {0: State(pairs={0: 1, 1: None})})

    def other(region: int):
        def change(rows):
            found = next(each for each in rows[0]["by_hand"] if each["sentence"] == 0)
            found["region"] = region

        return change

    rewrite(tmp_path / "new", other(0))
    (told,) = glit.verify(tmp_path / "new")
    assert "the rule gives sentence 0 with region 0" in told
    rewrite(tmp_path / "new", other(99))
    assert any("by_hand names a region" in told for told in glit.verify(tmp_path / "new"))
    with pytest.raises(DatasetError, match="by_hand names a region"):
        list(Dataset(tmp_path / "new"))


def test_pairs_of_files_stay_ones_and_zeros(scenes, tmp_path):
    caption = json.loads((scenes / "captions.jsonl").read_text().splitlines()[0])["caption"]
    boxes = ({"box_xyxy": [0, 0, 60, 60], "sentences": [caption.split(". ")[0] + "."]}, {"box_xyxy": [60, 60, 120, 120]})  # fmt: skip
    rows = [json.dumps({"path": "000000.png", **box}) for box in boxes]
    (tmp_path / "r.jsonl").write_text("\n".join(rows) + "\n")
    run_build(
        scenes / "images", tmp_path / "dataset", recipe="provided", limit=1,
        captions=scenes / "captions.jsonl", regions=tmp_path / "r.jsonl",
    )  # fmt: skip
    dataset = Dataset(tmp_path / "dataset")
    new, told = applied(dataset, tmp_path, {0: State(pairs={0: 1, 1: 0}, boxes={2: NEW})})
    made = new[0]
    assert told.warnings == () and set(made.similarity.ravel().tolist()) == {0, 1}
    assert (pair_of(made, 0).region, pair_of(made, 1).region) == (1, 0)
    assert made.image_similarity.tolist() == [0, 0] + [1] * (len(made.sentences) - 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sample_id": "0" * 64}, r"line 2: no sample 0000"),
        ({"state": {"struck": [99]}}, r"line 2: .*: sentence 99"),
        ({"state": {"pairs": {"0": 99}}}, r"line 2: .*: region 99"),
        ({"state": {"boxes": {"0": [0, 0, 5, 5000]}}}, r"line 2: .*leaves the 128x128 image"),
        ({"state": {"boxes": {"0": [9, 9, 9, 9]}}}, r"line 2: .*smaller than a pixel"),
        ({"dataset": "0" * 64}, r"line 2: corrections of another dataset"),
        ({"schema_version": 7}, r"line 2: corrections of version 7"),
    ],
)
def test_a_line_that_does_not_fit_changes_nothing(small, tmp_path, run_glit, change, said):
    file = corrected(small, tmp_path / "c.jsonl", {0: State(right=True)})
    line = json.loads(file.read_text())
    file.write_text(file.read_text() + json.dumps({**line, **change}) + "\n")
    words = ["pairs", "apply", small.path, "--corrections", file, "-o", tmp_path / "new", "--quiet"]
    done = run_glit(*words)
    assert done.code != 0 and done.output == ""
    (told,) = done.errors.strip().splitlines()
    assert re.search(rf"c\.jsonl, {said}", told), told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.jsonl"]


def test_two_files_and_an_unfinished_line_are_told(small, tmp_path, run_glit):
    first = corrected(small, tmp_path / "a.jsonl", {0: State(struck=(1,)), 1: State(right=True)})
    second = corrected(small, tmp_path / "b.jsonl", {0: State(struck=(2,), right=True)}, by="ben")
    with second.open("a") as file:
        file.write('{"format": ')
    words = ["--corrections", first, "--corrections", second, "-o", tmp_path / "new"]
    done = run_glit("pairs", "apply", small.path, *words, "--json")
    assert done.code == 0, done.errors
    assert "b.jsonl: its last line is unfinished and is left out" in done.errors
    assert "b.jsonl: 1 samples are in an earlier file too" in done.errors
    told = json.loads(done.output)
    texts = [each.text for each in Dataset(tmp_path / "new")[0].sentences]
    old = [each.text for each in small[0].sentences]
    assert texts == [text for number, text in enumerate(old) if number != 2]
    assert told["samples"] == 2 and told["counts"]["right"] == 2
    judged = [pair for n in (0, 1) for pair in small[n].pairs if not pair.global_wins]
    wrong = sum(not pair.global_wins and pair.sentence == 2 for pair in small[0].pairs)
    assert told["precision"]["pairs"] == len(judged)
    assert told["precision"]["right"] == len(judged) - wrong
    for kind in ("label", "source", "probability"):
        groups = told["precision"][kind].values()
        assert sum(each["pairs"] for each in groups) == len(judged)
    plain = run_glit("pairs", "apply", small.path, *words[:-1], tmp_path / "other", "--quiet")
    assert "left as right: " in plain.output and "by probability" in plain.output
    assert data(tmp_path / "new") == data(tmp_path / "other")


def test_quiet_prints_nothing_but_the_result(small, tmp_path, run_glit):
    file = corrected(small, tmp_path / "c.jsonl", {2: State(texts={0: "A red dog sleeps."})})
    words = ["--corrections", file, "-o", tmp_path / "new", "-q"]
    done = run_glit("pairs", "apply", small.path, *words)
    assert (done.code, done.errors) == (0, "")
    first, *others = done.output.splitlines()
    assert first == f"1 samples (1 edited), 0 dropped: {tmp_path / 'new'}"
    assert [line.partition(":")[0] for line in others] == ["no recommended pair is judged yet"]
    assert logging.is_progress_bar_enabled()


def data(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.parquet"))}


KILLED = """
import os, signal, sys
import glit
from glit.review.corrections import apply
apply.finish = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
glit.apply_corrections(sys.argv[1], sys.argv[2], [sys.argv[3]])
"""


@pytest.mark.slow
def test_one_that_was_killed_is_repeated_to_the_same_bytes(small, tmp_path):
    file = corrected(small, tmp_path / "c.jsonl", {0: State(boxes={0: NEW}, texts={1: "A dog."})})
    out = tmp_path / "new"
    before = data(Path(small.path))
    done = subprocess.run([sys.executable, "-c", KILLED, small.path, out, file], check=False)
    assert done.returncode == -signal.SIGKILL and not out.exists()
    glit.apply_corrections(small.path, out, [file])
    glit.apply_corrections(small.path, tmp_path / "twice", [file])
    assert data(out) == data(tmp_path / "twice") and data(Path(small.path)) == before
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["c.jsonl", "new", "twice"]


def test_no_file_is_refused(small, tmp_path):
    with pytest.raises(InputError, match=r"c\.jsonl: cannot be read"):
        glit.apply_corrections(small.path, tmp_path / "new", [tmp_path / "c.jsonl"])
