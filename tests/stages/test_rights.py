"""The stage that reads what pictures say of their rights, and what a build tells of it."""

from __future__ import annotations

import json

import pytest
from building import png, quiet, run_build
from noticed import NOTICES, noticed, picture, signed, with_xmp, xmp

from glit.dataset.query import query
from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import RecipeError
from glit.inputs.rights.signature import check_signature
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.retry import retry

ON = ("rights.enabled=true", "caption.backend=sidecar")
CLEAN, SAYS_NO, MADE, SIGNED, BROKEN = (
    "clean.png",
    "in/no.jpg",
    "in/made.jpg",
    "in/signed.png",
    "broken.jpg",
)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A picture without notices; of a forbidding, a generated, a signed one and one whose XMP is damaged."""
    folder = tmp_path_factory.mktemp("images")
    made = xmp(
        "<Iptc4xmpExt:DigitalSourceType>http://cv.iptc.org/newscodes/digitalsourcetype/"
        "trainedAlgorithmicMedia</Iptc4xmpExt:DigitalSourceType>"
    )
    files = {
        CLEAN: png(),
        SAYS_NO: noticed(picture(seed=1), NOTICES),
        MADE: with_xmp(made),
        SIGNED: signed("PNG", uses={"data_mining": "notAllowed"}, original=picture("PNG", seed=3)),
        BROKEN: noticed(picture(seed=4), NOTICES).replace(b"</rdf:RDF>", b"</rdf:RDG>"),
    }
    (folder / "in").mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
        (folder / name).with_suffix(".txt").write_text("A red circle. A blue square.")
    return folder


def built(images, output, *overrides: str) -> Dataset:
    run_build(images, output, recipe="captions-only", overrides=(*ON, *overrides))
    assert not list(verify(str(output)))
    return Dataset(str(output))


@pytest.fixture(scope="module")
def whole(images, tmp_path_factory) -> Dataset:
    return built(images, tmp_path_factory.mktemp("whole") / "out")


def drops(dataset: Dataset) -> dict[str, tuple[str, str]]:
    return {r["source_path"]: (r["reason"], r["message"]) for r in dataset.drops().to_pylist()}


def test_the_column_and_nothing_dropped(whole):
    rights = {row.source_path: row.extra["rights"] for row in whole}
    assert len(rights) == 5 and rights[CLEAN]["mining"] is None and rights[CLEAN]["sources"] == []
    assert (
        rights[SAYS_NO]["copyright"] == "© Xmp Ötzi" and rights[SAYS_NO]["mining"] == "prohibited"
    )
    assert rights[MADE]["ai_generated"] and rights[SIGNED]["c2pa"] == "present"
    assert rights[SIGNED]["claim_generator"] == "a-camera"
    broken = rights[BROKEN]
    assert (
        broken["unreadable"] == ["xmp"] and broken["copyright"] == "© Iptc Ötzi"
    )  # not lost with it
    sql = "SELECT source_path FROM samples WHERE rights.mining = 'prohibited' ORDER BY ALL"
    assert query(whole.path, sql).fetchall() == [(SAYS_NO,), (SIGNED,)]


@pytest.mark.parametrize(
    ("reasons", "dropped"),
    [
        (["mining_prohibited"], {SAYS_NO: "by xmp", SIGNED: "by c2pa"}),
        (["ai_generated"], {MADE: "by xmp"}),
        (["no_licence"], dict.fromkeys((CLEAN, MADE, SIGNED, BROKEN), "no licence is named")),
    ],
)
def test_drops_that_are_chosen(images, tmp_path, reasons, dropped):
    dataset = built(images, tmp_path / "out", f"rights.drop={json.dumps(reasons)}")
    assert drops(dataset) == {path: (reasons[0], text) for path, text in dropped.items()}
    assert len(dataset) == 5 - len(dropped)


def test_reservations_of_a_users_file(images, tmp_path):
    file = tmp_path / "tdmrep.json"
    file.write_text(
        '[{"location": "/", "tdm-reservation": 0}, {"location": "/in/m", "tdm-reservation": 1}]'
    )
    overrides = (f'rights.reservations=["{file}"]', 'rights.drop=["mining_prohibited"]')
    dataset = built(images, tmp_path / "out", *overrides)
    assert drops(dataset)[MADE] == ("mining_prohibited", "by tdmrep.json")
    assert drops(dataset).keys() == {
        MADE,
        SAYS_NO,
        SIGNED,
    }  # who forbids it in the picture is heard
    (clean,) = [row.extra["rights"] for row in dataset if row.source_path == CLEAN]
    assert clean["mining"] == "allowed" and clean["sources"] == [
        {"field": "mining", "source": "tdmrep.json"}
    ]
    before = dataset.manifest.fingerprints["rights"]
    file.write_text("[]")
    run_build(
        images, tmp_path / "out", recipe="captions-only", overrides=(*ON, *overrides), replace=True
    )
    after = Dataset(str(tmp_path / "out"))
    assert after.manifest.fingerprints["rights"] != before and drops(after).keys() == {
        SAYS_NO,
        SIGNED,
    }


def test_a_retry_takes_drops_back(images, tmp_path):
    built(images, tmp_path / "out", 'rights.drop=["ai_generated"]')
    retry(str(tmp_path / "out"), LocalExecutor(), quiet(), settings=("rights.drop=[]",))
    assert len(Dataset(str(tmp_path / "out"))) == 5


def test_an_unknown_reason():
    with pytest.raises(
        RecipeError, match=r"\[rights\] drop: found 'forbidden', want some of mining_prohibited"
    ):
        run_build("x", "y", overrides=("rights.enabled=true", 'rights.drop=["forbidden"]'))


def test_signatures_that_are_checked(images, tmp_path):
    dataset = built(images, tmp_path / "out", "rights.check_signatures=true")
    rights = {row.source_path: row.extra["rights"] for row in dataset}
    assert (rights[SIGNED]["c2pa"], rights[SIGNED]["signer"]) == ("valid", "Tests")
    assert (rights[CLEAN]["c2pa"], rights[CLEAN]["signer"]) == ("none", None)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_a_signature_of_another_picture(kind):
    data = signed(kind)
    assert check_signature(data) == ("valid", "Tests")
    at = {"PNG": data.rfind(b"IDAT") - 10}.get(kind, len(data) - 20)
    assert check_signature(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])[0] == "invalid"
    assert check_signature(data[: len(data) // 3]) == ("invalid", None)


def test_the_card_and_croissant(whole):
    from pathlib import Path

    folder = Path(whole.path)
    card = (folder / "README.md").read_text()
    assert "## Rights in the pictures" in card
    assert "| data mining or training prohibited | 2 | 40.0% |" in card
    assert "| licence: `https://example.org/licence` | 1 | 20.0% |" in card
    assert "| with a C2PA manifest, not checked | 1 | 20.0% |" in card
    croissant = json.loads((folder / "croissant.json").read_text())
    assert "rights in the pictures" in [each["name"] for each in croissant["usageInfo"]]
    (field,) = [f for f in croissant["recordSet"][0]["field"] if f["name"] == "rights"]
    assert {"mining", "licence"} <= {each["name"] for each in field["subField"]}


def test_verify_finds_values_that_are_none(whole, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from glit.dataset.row_checks import row_faults
    from glit.inputs.rights import RIGHTS

    table = pq.read_table(f"{whole.path}/data", columns=["rights"])
    assert list(row_faults(table)) == []
    rows = table["rights"].to_pylist()
    rows[1] |= {"mining": "perhaps"}
    rows[2] |= {"c2pa": None}
    changed = pa.table({"rights": pa.array(rows, RIGHTS)})
    assert list(row_faults(changed)) == [
        (1, "its rights.mining is unknown"),
        (2, "its rights.c2pa is unknown"),
    ]


def test_off_changes_no_byte(images, tmp_path, whole):
    run_build(images, tmp_path / "off", recipe="captions-only", overrides=ON[1:])
    off, on = Dataset(str(tmp_path / "off")), whole
    assert "rights" not in off.schema.names and "rights" not in off.manifest.fingerprints
    assert "rights" not in json.dumps(json.loads((tmp_path / "off/manifest.json").read_text()))
    assert off.table().equals(on.table().drop_columns(["rights"]))
