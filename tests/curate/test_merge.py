"""``glit merge``: the rows of several finished datasets as one."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from building import run_build

import glit
from glit.curate import row_writer
from glit.data import rows
from glit.data.schema import META_TOKENIZER
from glit.dataset.by_hand import rule_of
from glit.dataset.croissant import CROISSANT
from glit.dataset.recorded_rules import pairings_of, scores_of
from glit.errors import DatasetError, InputError, RecipeError
from glit.rules.calibration import Calibration
from glit.rules.logistic import Logistic
from glit.rules.rules import Argmax, Centred
from glit.storage.store import to_json


def tables(folder) -> pa.Table:
    return pa.concat_tables([pq.read_table(p) for p in sorted((Path(folder) / "data").iterdir())])


def files(folder: Path) -> dict[str, bytes]:
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def halves(built, tmp_path_factory) -> tuple[Path, Path]:
    """Rows 0 to 13 and 10 to 23."""
    folder = tmp_path_factory.mktemp("halves")
    for name, where in (("a", "source_path < '000014'"), ("b", "source_path >= '000010'")):
        glit.select(built, folder / name, where=where)
    return folder / "a", folder / "b"


def test_rows_one_after_another_the_first_of_a_repeated_sample(built, halves, tmp_path):
    a, b = halves
    found = glit.merge([a, b], tmp_path / "new")
    merged = tables(found.path)
    assert merged.drop_columns(["origin"]).equals(tables(built))
    origins = [(row["dataset"], row["recipe"]) for row in merged["origin"].to_pylist()]
    assert origins == [("a", "mini")] * 14 + [("b", "mini")] * 10
    assert glit.verify(found.path) == []
    counts = found.manifest.counts
    assert (counts.ingested, counts.shipped, counts.duplicates) == (28, 24, 4)
    assert counts.dropped == 0 and len(found.drops()) == 0
    repeated = found.duplicates().to_pylist()
    assert [row["source_path"] for row in repeated] == [f"{n:06d}.png" for n in range(10, 14)]
    assert all((row["kind"], row["kept_path"]) == ("exact", row["source_path"]) for row in repeated)
    merged = found.manifest.merged
    assert [(each.name, each.rows) for each in merged] == [("a", 14), ("b", 14)]
    assert merged[1].more["selection"]["where"] == "source_path >= '000010'"
    assert found.manifest.selection is None and found.manifest.rules == ()
    assert found.manifest.fingerprints == glit.open_dataset(built).manifest.fingerprints
    assert str(tmp_path) not in json.dumps(found.manifest.as_dict())
    card = " ".join((tmp_path / "new" / "README.md").read_text().split())
    assert "Merged from a (`mini`), b (`mini`)" in card


def test_the_other_order_and_the_same_bytes_again(halves, tmp_path):
    a, b = halves
    for name in ("x", "y"):
        found = glit.merge([b, a], tmp_path / name / "new")
    assert files(tmp_path / "x") == files(tmp_path / "y")
    assert next(found.rows()).source_path == "000010.png" and len(found) == 24


@pytest.fixture(scope="module")
def two_rules(scenes, built, halves, tmp_path_factory) -> Path:
    """Half a dataset by argmax, half by centred."""
    folder = tmp_path_factory.mktemp("rules")
    glit.pair(halves[1], folder / "centred", settings=["pair.rule=centred"])
    glit.merge([halves[0], folder / "centred"], folder / "new")
    return folder / "new"


def test_pairs_of_two_rules_are_verified_by_either(two_rules, run_glit, tmp_path):
    assert glit.verify(two_rules) == []
    manifest = glit.open_dataset(two_rules).manifest
    assert [each.name for each in manifest.rules] == ["argmax", "centred"]
    told = run_glit("explain", two_rules, "000003.png")
    assert told.code == 0 and "argmax, centred" in told.output
    assert run_glit("view", two_rules, "-o", tmp_path / "page.html").code == 0
    wrong = dataclasses.replace(manifest, rules=manifest.rules[:1])
    (copy := tmp_path / "copy").mkdir()
    shutil.copytree(two_rules, copy, dirs_exist_ok=True)
    (copy / "manifest.json").write_bytes(wrong.as_bytes())
    assert any("the rule gives" in breach for breach in glit.verify(copy))


def test_a_row_is_changed_by_the_rule_that_chose_its_pairs(two_rules):
    """As attach and corrections change rows."""
    dataset = glit.open_dataset(two_rules)
    pairings = pairings_of(dataset.manifest)
    kinds = {"a": Argmax, "centred": Centred}
    seen = set()
    for row in pq.read_table(two_rules / "data").to_pylist():
        pairing, kind = rule_of(row, pairings), kinds[row["origin"]["dataset"]]
        scores = rows.scores(row, len(row["sentences"]))
        regions = tuple(map(rows.region, row["regions"]))
        sentences = tuple(map(rows.sentence, row["sentences"]))
        own = next(each for each in pairings if type(each.rule) is kind)
        assert pairing(scores, regions, sentences) == own(scores, regions, sentences)
        seen.add(kind if pairing is own else None)
    assert {Argmax, Centred} <= seen


def test_a_part_of_two_rules_keeps_them_and_other_pairs_have_one(two_rules, halves, tmp_path):
    part = glit.select(two_rules, tmp_path / "part", sample=12)
    assert len(part.manifest.rules) == 2 and glit.verify(part.path) == []
    again = glit.merge([part.path, halves[1]], tmp_path / "again")
    assert len(again.manifest.rules) == 2 and glit.verify(again.path) == []
    before = {row.sample_id: row.extra["origin"] for row in glit.open_dataset(two_rules)}
    digest = again.manifest.merged[1].manifest_sha256
    for row in again:  # a merged dataset's rows keep theirs
        origin = row.extra["origin"]
        new = {"dataset": "b", "recipe": "mini", "manifest_sha256": digest}
        assert origin == (new if origin["manifest_sha256"] == digest else before[row.sample_id])
    by_origin = glit.select(again.path, tmp_path / "one-origin", where="origin.dataset = 'centred'")
    assert {row.extra["origin"]["dataset"] for row in by_origin} == {"centred"}
    one = glit.pair(two_rules, tmp_path / "one", settings=["pair.rule=argmax"])
    assert one.manifest.rules == () and glit.verify(one.path) == []


def test_other_recipes_and_models(built, scenes, tmp_path):
    """Images made smaller, and another matcher: no calibration fits to scores of two."""
    run_build(scenes / "images", tmp_path / "small", captions=scenes / "captions.jsonl", limit=30,
              overrides=["pack.max_side=64", "propose.max_regions=5"])  # fmt: skip
    manifest = json.loads((tmp_path / "small" / "manifest.json").read_text())
    manifest["models"]["matcher"]["sha256"] = "0" * 64
    manifest["recipe"]["name"] = "other"
    (tmp_path / "small" / "manifest.json").write_text(json.dumps(manifest))
    some = glit.select(tmp_path / "small", tmp_path / "some", where="source_path > '000020'")
    half = glit.select(built, tmp_path / "half", where="source_path < '000020'")
    found = glit.merge([half.path, some.path], tmp_path / "new")
    assert glit.verify(found.path) == [] and len(found) == 24
    assert found.manifest.recipe.name == "mini + other"
    assert found.manifest.models["matcher-2"].sha256 == "0" * 64
    ours, theirs, both = (each.manifest.fingerprints for each in (half, some, found))
    assert {step for step in both if both[step] != ours[step]} == {
        step for step in ours if ours[step] != theirs[step]
    }
    assert "Merged from half (`mini`), some (`other`)" in (tmp_path / "new" / CROISSANT).read_text()
    with pytest.raises(RecipeError, match="is for scores of the matcher"):
        glit.pair(
            found.path, tmp_path / "pairs", recipe="mini", settings=calibrated(tmp_path, half)
        )


def calibrated(folder: Path, dataset) -> list[str]:
    """Settings with a calibration that fits to a dataset."""
    calibration = Calibration(
        rule={"rule": "argmax"},
        scores=scores_of(dataset.manifest),
        pair=Logistic(evidence=("value",), mean=(0.0,), scale=(1.0,), weight=(1.0,), bias=0.0),
    )
    (folder / "own.json").write_text(json.dumps(calibration.as_dict()))
    settings = ["pair.rule=argmax", f"pair.calibration={folder / 'own.json'}"]
    glit.pair(dataset.path, folder / "fits", settings=settings)
    return settings


def changed(dataset: Path, to: Path, change) -> Path:
    shutil.copytree(dataset, to)
    manifest = json.loads((to / "manifest.json").read_text())
    change(manifest)
    for name in manifest["files"]:
        if name.startswith("data/"):
            table = pq.read_table(to / name)
            told = {**table.schema.metadata, META_TOKENIZER: json.dumps(manifest["tokenizer"])}
            pq.write_table(table.replace_schema_metadata(told), to / name)
    (to / "manifest.json").write_bytes(to_json(manifest))
    return to


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: None, "the same dataset as"),
        (lambda m: m["tokenizer"].update(context=77), "tiny-clip in a window of 77"),
        (lambda m: m["recipe"]["pack"].update(image_store="path"), "stores only paths"),
    ],
)
def test_what_does_not_fit_together_writes_nothing(halves, tmp_path, change, said):
    other = changed(halves[0], tmp_path / "other", change)
    with pytest.raises(InputError, match=said) as caught:
        glit.merge([halves[0], other], tmp_path / "new")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_other_columns_are_named(built, scenes, tmp_path):
    run_build(scenes / "images", tmp_path / "more", captions=scenes / "captions.jsonl", limit=5,
              overrides=["negatives.enabled=true"])  # fmt: skip
    with pytest.raises(InputError, match=r"its columns are not those of .* \(negatives\)"):
        glit.merge([built, tmp_path / "more"], tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("key", ["merged", "rules", "selection"])
def test_a_damaged_entry_is_named(halves, tmp_path, key):
    broken = changed(halves[0], tmp_path / "broken", lambda m: m.update({key: [3]}))
    with pytest.raises(DatasetError, match=f"manifest.json: '{key}': found"):
        glit.open_dataset(broken)


def test_ctrl_c_leaves_nothing(halves, tmp_path, monkeypatch):
    def stops(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(row_writer, "describe_data_file", stops)
    with pytest.raises(KeyboardInterrupt):
        glit.merge(halves, tmp_path / "new")
    assert [*tmp_path.iterdir()] == []
