"""Every kind of damage is found and named."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changed import edit_manifest, first_file, rewrite

from glit.dataset.manifest import read_manifest
from glit.dataset.verify import verify
from glit.errors import DatasetError, UserError
from glit.rules import RULES
from glit.storage.store import Store


def breaches(dataset) -> str:
    return "\n".join(verify(str(dataset)))


def test_a_missing_and_an_extra_file(built_copy):
    path = first_file(built_copy)
    path.rename(path.with_name("extra.parquet"))
    found = breaches(built_copy)
    assert f"data/{path.name}: missing" in found
    assert "data/extra.parquet: not in the manifest" in found


def test_a_flipped_byte(built_copy):
    path = first_file(built_copy)
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(bytes(data))
    assert "its SHA-256 is not the manifest's" in breaches(built_copy)


def test_a_truncated_file(built_copy):
    path = first_file(built_copy)
    path.write_bytes(path.read_bytes()[:-100])
    found = breaches(built_copy)
    assert "bytes, the manifest says" in found and "not a readable Parquet file" in found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[0].update(width=7), r"pixels, the row says"),
        (lambda rows: rows[0].update(caption="x" + rows[0]["caption"]), "character span"),
        (lambda rows: rows[0]["pairs"].reverse(), "the rule gives sentence"),
        (lambda rows: rows[0]["pairs"].pop(), "7 pairs, the rule gives 8"),
        (lambda rows: rows[0]["similarity"].pop(), "its similarity has 39 values, not 40 for 8 sentences and 5 regions"),
        (lambda rows: rows[0]["pairs"][0].update(region=rows[0]["pairs"][0]["region"] ^ 1), "pair 0: sentence"),
        (lambda rows: rows[0]["pairs"][0].update(similarity=0.9), "at 0.8999999761581421, the rule gives"),
        (lambda rows: rows[0]["pairs"][0].update(global_wins=True), "(the whole image wins), the rule gives"),
        (lambda rows: rows[0]["sentences"][0].update(in_window=False), "in_window is wrong"),
        (lambda rows: rows[0]["image"].update(bytes=b"no"), "cannot be decoded"),
        (lambda rows: rows[0]["image"].update(bytes=rows[1]["image"]["bytes"]), "not the one its sample_id names"),
        (lambda rows: rows[0]["pairs"][0].update(probability=0.5), "pair 0"),
        (lambda rows: rows[0].update(regions=[]), "it has no region, at least one is due"),
        (lambda rows: rows.pop(), "shipped, but its data files hold"),
    ],
)  # fmt: skip
def test_rows_that_lie(built_copy, change, message):
    rewrite(built_copy, change)
    assert message in breaches(built_copy)


def test_other_columns_are_not_the_schema(built_copy):
    path = first_file(built_copy)
    pq.write_table(pq.read_table(path).drop_columns(["pairs"]), path)
    assert "its columns are not those of the schema" in breaches(built_copy)


def test_a_balance_that_does_not_hold(built_copy):
    edit_manifest(built_copy, lambda m: m["counts"].update(ingested=99))
    assert "the balance does not hold: 99 ingested" in breaches(built_copy)
    manifest = read_manifest(Store(built_copy))
    with pytest.raises(DatasetError, match="the balance does not hold: 99 ingested"):
        manifest.as_bytes()


def test_no_dataset_and_an_unfinished_one(tmp_path, built_copy):
    with pytest.raises(UserError, match="no dataset here"):
        list(verify(str(tmp_path)))
    (built_copy / "manifest.json").unlink()
    with pytest.raises(UserError, match="not finished"):
        list(verify(str(built_copy)))


def test_a_manifest_of_another_version(built_copy):
    edit_manifest(built_copy, lambda m: m.update(schema_version=99))
    with pytest.raises(DatasetError, match="schema version 99"):
        list(verify(str(built_copy)))


@pytest.mark.parametrize("key", ["recipe", "fingerprints", "models", "counts", "files"])
def test_a_manifest_without_what_it_must_say(built_copy, key):
    edit_manifest(built_copy, lambda m: m.pop(key))
    with pytest.raises(DatasetError, match=f"manifest.json: '{key}': is missing; build"):
        list(verify(str(built_copy)))
    (built_copy / "manifest.json").write_text("[]")
    with pytest.raises(DatasetError, match="no manifest of glit"):
        list(verify(str(built_copy)))


def test_a_row_with_several_faults_has_a_line_for_each(built_copy):
    def change(rows):
        rows[0]["regions"][0].update(x1=-1.0)
        rows[0]["sentences"][0].update(in_window=False)
        rows[0]["image"].update(bytes=b"no")
        rows[0]["pairs"].pop()  # which no rule can say of a row like this
        rows[1].update(caption=None)
        rows[2]["pairs"].pop()
        rows[3]["regions"][0].update(score=float("inf"))

    rewrite(built_copy, change)
    name = f"data/{first_file(built_copy).name}"
    paths = pq.read_table(built_copy / name, columns=["source_path"])["source_path"].to_pylist()
    lines = [line.removeprefix(f"{name}: ") for line in verify(str(built_copy))]
    assert [line.partition(": ")[0] for line in lines] == [paths[0]] * 3 + paths[1:4]
    for line, said in zip(
        lines, ("box", "decoded", "in_window", "caption is null", "7 pairs", "score"), strict=True
    ):
        assert said in line


def test_a_sample_that_comes_again_is_named_with_the_first_across_files(built_copy):
    path = first_file(built_copy)
    rewrite(built_copy, lambda rows: rows[2].update(sample_id=rows[0]["sample_id"]))
    again = path.with_name("train-00008-of-00008.parquet")
    shutil.copy(path, again)
    edit_manifest(
        built_copy,
        lambda m: m["files"].update({f"data/{again.name}": m["files"][f"data/{path.name}"]}),
    )
    paths = pq.read_table(path, columns=["source_path"])["source_path"].to_pylist()
    lines = [line for line in verify(str(built_copy)) if "the same sample as" in line]
    firsts = [paths[0], paths[1], paths[0], *paths[3:]]
    assert lines == [f"data/{path.name}: {paths[2]}: the same sample as {paths[0]}"] + [
        f"data/{again.name}: {own}: the same sample as {first}"
        for own, first in zip(paths, firsts, strict=True)
    ]


def test_pairs_are_checked_against_the_rule_that_the_manifest_names(built_copy):
    edit_manifest(built_copy, lambda m: m["recipe"]["pair"].update(rule="lism"))
    assert "(the whole image wins)" in breaches(built_copy)


def test_a_rule_that_this_glit_does_not_have(built_copy):
    edit_manifest(built_copy, lambda m: m["recipe"]["pair"].update(rule="oracle", depth=3))
    assert breaches(built_copy) == (
        "manifest.json: pairs by the rule 'oracle' with {'depth': 3}, which this glit does not "
        f"have (it has {', '.join(RULES)})"
    )


@pytest.mark.parametrize("name", ["drops.parquet", "duplicates.parquet"])
def test_another_table_in_the_place_of_what_was_left_out(built_copy, name):
    pq.write_table(pa.table({"a": [1]}), built_copy / name)
    assert f"{name}: its columns are not those of the schema" in breaches(built_copy)
    data = (built_copy / name).read_bytes()
    (built_copy / name).write_bytes(data.replace(b"\x01a", b"\x01\xff"))
    assert f"{name}: cannot be read" in breaches(built_copy)


def test_drops_without_a_reason(built_copy):
    path = built_copy / "drops.parquet"
    pq.write_table(pa.Table.from_pylist([{}], schema=pq.read_schema(path)), path)
    assert "unknown reasons None" in breaches(built_copy)
