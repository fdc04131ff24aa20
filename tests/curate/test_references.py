"""Lists of images that a dataset must not hold: written, compared, excluded."""

from __future__ import annotations

import io
import itertools
import random
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from building import run_build
from PIL import Image, ImageEnhance

import glit
from glit import api
from glit.data import resemblance
from glit.data.reference_list import Reference, list_bytes
from glit.data.resemblance import References, thumbnail
from glit.dataset.reader import Dataset
from glit.errors import InputError, RecipeError
from glit.images import decode
from glit.stages.exclude import open_references


def jpeg(image: Image.Image, quality: int = 50) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def cropped(image: Image.Image, share: float = 0.8) -> Image.Image:
    rng = random.Random(image.width * 7 + image.height)
    width, height = int(image.width * share), int(image.height * share)
    left, top = rng.randint(0, image.width - width), rng.randint(0, image.height - height)
    return image.crop((left, top, left + width, top + height))


WAYS = {
    "re-encoded": (jpeg, 1.0),
    "resized": (lambda image: image.resize((image.width // 2, image.height // 2)), 1.0),
    "grey": (lambda image: image.convert("L").convert("RGB"), 1.0),
    "brighter": (lambda image: ImageEnhance.Brightness(image).enhance(1.3), 0.95),
    "mirrored": (lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), 1.0),
    "turned": (lambda image: image.rotate(90, expand=True), 1.0),
    "cropped": (cropped, 0.8),
    "cropped, mirrored": (
        lambda image: jpeg(cropped(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)), 70),
        0.8,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_photographs_after_what_people_do_to_them(photographs, way):
    """Half of fifty are in the list; of the others none may be found."""
    change, least = WAYS[way]
    images = [
        Image.fromarray(decode(path.read_bytes())) for path in sorted(photographs.glob("*.jpg"))
    ]
    known = np.stack([thumbnail(np.asarray(image)) for image in images[:25]])
    found = References(known).resembled(
        np.stack([thumbnail(np.asarray(change(image))) for image in images])
    )
    assert found[25:] == [None] * 25
    right = [each is not None and each.reference == n for n, each in enumerate(found[:25])]
    assert np.mean(right) >= least
    assert all(each is None or each.reference == n for n, each in enumerate(found[:25]))
    words = {"mirrored": "mirrored", "turned": "turned", "cropped": "cropped"}.get(way)
    assert not words or all(each is None or words in each.kind for each in found)


def test_pictures_of_one_colour_resemble_nothing():
    white = np.full((3, 64, 64), 255, np.uint8)
    white[1] = 7
    assert References(white).resembled(white) == [None] * 3
    assert References(white[:0]).resembled(white) == [None] * 3


def test_the_index_finds_what_comparing_all_hashes_finds(photographs):
    images = [decode(path.read_bytes()) for path in sorted(photographs.glob("*.jpg"))[:12]]
    known = np.stack([thumbnail(image) for image in images])
    asked = np.concatenate([known, known[:, ::-1], np.rot90(known, axes=(1, 2)), known[:, 4:60, 4:60].repeat(2, 1).repeat(2, 2)[:, :64, :64]])  # fmt: skip
    index = References(known)
    own, means = resemblance.hashes(asked)
    wanted = []
    for image, entry in itertools.product(range(len(own)), range(len(index._hashes))):
        differing = int(own[image] ^ index._hashes[entry])
        bands = [(differing >> 16 * band & 0xFFFF).bit_count() for band in range(4)]
        if min(bands) <= 1 and sum(bands) <= resemblance.MOST_BITS:
            pair = means[image][None], index._means[entry][None]
            if resemblance._correlations(*pair)[0] >= resemblance._LEAST_OF_MEANS:
                wanted.append((image, entry))
    assert list(index._candidates(asked)) == wanted and len(wanted) > 40


@pytest.fixture
def listed(scenes, tmp_path):
    """The first two scenes as evaluation images, one of them mirrored, and a broken file."""
    folder = tmp_path / "evaluation"
    folder.mkdir()
    shutil.copy(scenes / "images" / "000000.png", folder / "a.png")
    Image.open(scenes / "images" / "000001.png").transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(
        folder / "b.jpg", quality=90
    )
    (folder / "c.png").write_bytes(b"no image")
    written = api.references(folder, tmp_path / "list.parquet")
    assert written.num_images == 2 and list(written.unusable) == ["c.png"]
    return tmp_path / "list.parquet"


def test_a_list_is_the_same_bytes_again(listed, tmp_path):
    api.references(tmp_path / "evaluation", tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == listed.read_bytes()
    assert pq.read_table(listed)["name"].to_pylist() == ["a.png", "b.jpg"]


def test_a_build_leaves_them_out_and_overlap_finds_them(scenes, listed, tmp_path, run_glit):
    def build(name, *overrides):
        run_build(
            scenes / "images", tmp_path / name, captions=scenes / "captions.jsonl",
            overrides=overrides, limit=6,
        )  # fmt: skip
        return Dataset(str(tmp_path / name))

    plain = build("plain")
    without = build("without", "exclude.enabled=true", f'exclude.lists=["{listed}"]')
    assert {row.source_path for row in plain} - {row.source_path for row in without} == {
        "000000.png", "000001.png",
    }  # fmt: skip
    drops = {row["source_path"]: row for row in without.drops().to_pylist()}
    assert {row["reason"] for row in drops.values()} == {"in_evaluation"}
    assert drops["000000.png"]["message"] == "a.png: same file (1.000)"
    assert drops["000001.png"]["message"].startswith("b.jpg: same picture, mirrored (")
    assert glit.verify(tmp_path / "without") == []

    found = api.overlap(tmp_path / "plain", listed)
    assert [(each.source_path, each.found.name) for each in found] == [
        ("000000.png", "a.png"), ("000001.png", "b.jpg"),
    ]  # fmt: skip
    assert api.overlap(tmp_path / "without", listed) == []
    done = run_glit("overlap", str(tmp_path / "plain"), str(listed))
    assert done.code == 1 and done.output.endswith(f"that are in {listed}: 2\n")
    assert run_glit("overlap", str(tmp_path / "without"), str(listed)).code == 0


def test_a_changed_list_is_another_fingerprint(scenes, listed, tmp_path):
    def build():
        run_build(
            scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl", limit=3,
            overrides=["exclude.enabled=true", f'exclude.lists=["{listed}"]'],
        )  # fmt: skip
        return Dataset(str(tmp_path / "out")).manifest["fingerprints"]["exclude"]

    before = build()
    picture = thumbnail(decode((scenes / "images" / "000002.png").read_bytes()))
    listed.write_bytes(list_bytes([Reference(name="d", sha256="0" * 64, thumbnail=picture)]))
    shutil.rmtree(tmp_path / "out")
    assert build() != before


def test_files_that_are_no_lists(built, scenes, tmp_path):
    for name, data, said in (
        ("none.parquet", None, "No such file"),
        ("text.parquet", b"text", "no list of references"),
        ("other.parquet", next((built / "data").iterdir()).read_bytes(), "no list of references"),
    ):
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(InputError, match=said):
            open_references(str(path))
        with pytest.raises(InputError, match=said):
            api.overlap(built, path)
    with pytest.raises(RecipeError, match="lists: found none"):
        run_build(
            scenes / "images", tmp_path / "o", captions=scenes / "captions.jsonl",
            overrides=["exclude.enabled=true"],
        )  # fmt: skip
    with pytest.raises(InputError, match="holds no image"):
        (tmp_path / "empty").mkdir()
        api.references(tmp_path / "empty", tmp_path / "list.parquet")
