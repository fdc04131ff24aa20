"""Lists of images that a dataset must not hold: written, compared, excluded."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import json
import random
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from annotations import lines
from building import run_build, tiny_clip
from PIL import Image, ImageEnhance

import glit
from glit import api
from glit.data import resemblance
from glit.data.hash_index import HashIndex
from glit.data.reference_list import Reference, list_bytes
from glit.data.resemblance import References, thumbnail
from glit.dataset.reader import Dataset
from glit.errors import GlitError, InputError, RecipeError, RunError, UserError
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import load_embedder
from glit.images import decode
from glit.models.clip.encoder import ClipEncoder
from glit.pipeline.planning.recipe import load_recipe
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


@pytest.mark.parametrize(("share", "mirrored"), [(0.9, False), (0.8, False), (0.8, True)])
def test_photographs_of_which_the_list_has_a_crop(photographs, share, mirrored):
    images = [
        Image.fromarray(decode(path.read_bytes())) for path in sorted(photographs.glob("*.jpg"))
    ]
    crops = [cropped(image, share) for image in images[:25]]
    if mirrored:
        crops = [crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for crop in crops]
    listed = References(np.stack([thumbnail(np.asarray(crop)) for crop in crops]))
    found = listed.resembled(np.stack([thumbnail(np.asarray(image)) for image in images]))
    assert found[25:] == [None] * 25
    assert all(each is None or each.reference == n for n, each in enumerate(found[:25]))
    kinds = {each.kind for each in found if each}
    assert sum(each is not None for each in found) >= 0.8 * 25
    middle = ", mirrored" * mirrored
    assert kinds <= {f"same picture{middle}; the list has a crop", f"same picture{middle}"}


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
    entries = index._index
    wanted = []
    for image, entry in itertools.product(range(len(own)), range(len(entries.hashes))):
        differing = int(own[image] ^ entries.hashes[entry])
        bands = [(differing >> 16 * band & 0xFFFF).bit_count() for band in range(4)]
        if min(bands) <= 1 and sum(bands) <= resemblance.MOST_BITS:
            pair = means[image][None], index._means[entry][None]
            if resemblance._correlations(*pair)[0] >= resemblance._LEAST_OF_MEANS:
                wanted.append((image, entry))
    assert list(index._near(entries, own, means)) == wanted and len(wanted) > 40
    flipped = HashIndex(entries.hashes, flipped=True)
    assert list(index._near(flipped, own, means)) == wanted


def test_hashes_of_parts_are_those_of_each_part_alone(photographs):
    images = np.stack([thumbnail(decode(p.read_bytes())) for p in photographs.glob("*.jpg")][:3])
    values, means = resemblance.hashes(images, resemblance.WINDOWS)
    for number, (top, left, side) in enumerate(resemblance.WINDOWS):
        part = images[:, top : top + side, left : left + side].astype(object)
        rows, columns = (resemblance._overlaps(side, n).astype(int).astype(object) for n in (8, 9))
        sums = [rows @ each @ columns.T for each in part]
        own = slice(3 * number, 3 * number + 3)
        assert [(each // side**2).ravel().tolist() for each in sums] == means[own].tolist()
        bits = ["".join(str(int(b)) for b in (e[:, 1:] > e[:, :-1]).ravel()) for e in sums]
        assert [int(each, 2) for each in bits] == values[own].tolist()


@pytest.fixture(scope="module")
def plain(scenes, tmp_path_factory):
    """A dataset of six scenes."""
    folder = tmp_path_factory.mktemp("plain") / "dataset"
    run_build(scenes / "images", folder, captions=scenes / "captions.jsonl", limit=6)
    return folder


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


def test_a_build_leaves_them_out_and_overlap_finds_them(scenes, plain, listed, tmp_path, run_glit):
    def build(name, *overrides):
        run_build(
            scenes / "images", tmp_path / name, captions=scenes / "captions.jsonl",
            overrides=overrides, limit=6,
        )  # fmt: skip
        return Dataset(str(tmp_path / name))

    without = build("without", "exclude.enabled=true", f'exclude.lists=["{listed}"]')
    assert {row.source_path for row in Dataset(str(plain))} - {row.source_path for row in without} == {
        "000000.png", "000001.png",
    }  # fmt: skip
    drops = {row["source_path"]: row for row in without.drops().to_pylist()}
    assert {row["reason"] for row in drops.values()} == {"in_evaluation"}
    assert drops["000000.png"]["message"] == "a.png: same file (1.000)"
    assert drops["000001.png"]["message"].startswith("b.jpg: same picture, mirrored (")
    assert glit.verify(tmp_path / "without") == []

    found = api.overlap(plain, listed)
    assert [(each.source_path, each.found.name) for each in found] == [
        ("000000.png", "a.png"), ("000001.png", "b.jpg"),
    ]  # fmt: skip
    assert api.overlap(tmp_path / "without", listed) == []
    done = run_glit("overlap", str(plain), str(listed))
    assert done.code == 1 and done.output.endswith(f"that are in {listed}: 2\n")
    assert run_glit("overlap", str(tmp_path / "without"), str(listed)).code == 0


@pytest.fixture
def docci(scenes, tmp_path):
    """DOCCI's layout: a scene and another picture in the test part, a scene in another."""
    rows = [
        {"image_file": "test_0.png", "description": "A cat.", "split": "test"},
        {"image_file": "test_1.png", "description": "A dog.", "split": "test"},
        {"image_file": "train_0.png", "description": "A cow.", "split": "train"},
    ]
    annotations = lines(tmp_path / "docci" / "docci.jsonlines", rows)
    images = tmp_path / "elsewhere"
    images.mkdir()
    shutil.copy(scenes / "images" / "000001.png", images / "test_0.png")
    Image.effect_noise((64, 64), 90).convert("RGB").save(images / "test_1.png")
    shutil.copy(scenes / "images" / "000003.png", images / "train_0.png")
    return f"docci:{annotations}", images


def test_images_of_annotations(plain, docci, tmp_path, run_glit):
    annotations, images = docci
    listed, page = tmp_path / "docci.parquet", tmp_path / "page.html"
    done = run_glit("overlap", annotations, "-o", str(listed), "--images", str(images))
    assert done.code == 0 and "2 images" in done.output
    for words, said in [
        ([annotations], "want either"),
        ([annotations, str(listed), "-o", str(listed)], "want either"),
        ([annotations, "-o", str(listed), "--cosine", "0.9"], "leave out --cosine"),
    ]:
        done = run_glit("overlap", *words)
        assert done.code == 2 and said in done.errors and done.errors.count("\n") == 1
    for references in (listed, annotations):
        found = api.overlap(plain, references, page=page, images=images)
        assert [(each.source_path, each.found.name) for each in found] == [
            ("000001.png", "test_0.png"),
        ]  # fmt: skip
        assert page.read_text().count('"is_file":true') == 1
    done = run_glit(
        "overlap", str(plain), annotations, "--images", str(images), "--split", "train", "--json"
    )
    assert done.code == 1 and [each["source_path"] for each in json.loads(done.output)] == [
        "000003.png"
    ]
    (images / "test_1.png").write_bytes(b"no image")
    assert api.references(annotations, listed, folder=images).unusable.keys() == {"test_1.png"}
    with pytest.raises(InputError, match=r"1 of its files cannot be compared \(first: test_1.png"):
        api.overlap(plain, annotations, images=images)
    with pytest.raises(InputError, match="--split train: is of annotations"):
        api.references(images, listed, split="train")
    with pytest.raises(InputError, match="2 of 2 images are missing"):
        api.references(annotations, listed)
    with pytest.raises(UserError, match="--images .*: is for annotations"):
        api.references(images, listed, folder=images)


def test_hashes_alone_find_equal_files(scenes, plain, tmp_path):
    files = [scenes / "images" / name for name in ("000000.png", "000001.png")]
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    hashes = tmp_path / "hashes.sha256"
    hashes.write_text(f"{digests[0].upper()} *its name.png\n\n{digests[1]}\n")
    wanted = [("000000.png", "its name.png"), ("000001.png", digests[1])]
    api.references(hashes, tmp_path / "list.parquet")
    for references in (hashes, tmp_path / "list.parquet"):
        found = api.overlap(plain, references, page=tmp_path / "page.html")
        assert [(each.source_path, each.found.name) for each in found] == wanted
        assert {each.found.kind for each in found} == {"same file"}
    with pytest.raises(InputError, match="mini-matcher makes no embeddings"):
        api.overlap(plain, hashes, model="mini-matcher")
    for text, said in (("", "holds no hash"), (f"{digests[0]}\nabc x.png\n", "line 2: want 64")):
        hashes.write_text(text)
        with pytest.raises(InputError, match=said):
            api.references(hashes, tmp_path / "other.parquet")
    assert not (tmp_path / "other.parquet").exists()


@pytest.fixture(scope="module")
def parts(scenes, tmp_path_factory):
    """A list with embeddings of a part of a scene that hashes do not find, and its cosines with
    the scenes."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "images").mkdir()
    cropped(Image.open(scenes / "images" / "000002.png"), 0.5).save(folder / "images" / "part.png")
    api.references(folder / "images", folder / "list.parquet", model="mini-matcher")
    files = [*sorted((scenes / "images").glob("*.png"))[:6], folder / "images" / "part.png"]
    embedder = load_embedder("mini-matcher", EvaluateConfig())
    vectors = np.concatenate(list(embedder.pixels(decode(f.read_bytes()) for f in files)))
    return folder / "list.parquet", vectors[:-1] @ vectors[-1]


def test_embeddings_find_what_hashes_do_not(scenes, plain, parts, tmp_path, run_glit):
    listed, cosines = parts
    least = float(np.sort(cosines)[-3:-1].mean())
    wanted = {f"{n:06d}.png": cosines[n] for n in np.flatnonzero(cosines >= least)}
    assert api.overlap(plain, listed) == [] and len(wanted) == 2
    found = api.overlap(
        plain, listed, model="mini-matcher", cosine=least, page=tmp_path / "page.html"
    )
    assert {each.source_path: each.found.correlation for each in found} == pytest.approx(
        wanted, abs=1e-5
    )
    assert {(each.found.kind, each.found.name) for each in found} == {("meaning", "part.png")}
    assert '"kind":"meaning"' in (tmp_path / "page.html").read_text().replace(": ", ":")
    done = run_glit(
        "overlap", str(plain), str(listed), "--model", "mini-matcher", "--cosine", str(least)
    )
    assert done.code == 1 and "cosine 0." in done.output

    settings = [f'exclude.lists=["{listed}"]', "exclude.enabled=true", f"exclude.cosine={least}"]
    run_build(
        scenes / "images", tmp_path / "without", captions=scenes / "captions.jsonl", limit=6,
        overrides=[*settings, "exclude.model=mini-matcher"],
    )  # fmt: skip
    without = Dataset(str(tmp_path / "without"))
    drops = {row["source_path"]: row["message"] for row in without.drops().to_pylist()}
    assert drops.keys() == wanted.keys()
    assert all(message.startswith("part.png: meaning (cosine 0.") for message in drops.values())
    assert without.manifest.models["embedder"].name == "mini-matcher"
    assert glit.verify(without.path) == []
    with pytest.raises(RecipeError, match=r"name the lists' model"):
        load_recipe("mini", overrides=settings)


def test_a_list_with_embeddings_is_the_same_bytes_again(parts, tmp_path):
    listed, _ = parts
    api.references(listed.parent / "images", tmp_path / "again.parquet", model="mini-matcher")
    assert (tmp_path / "again.parquet").read_bytes() == listed.read_bytes()


def test_embeddings_that_cannot_be_compared(plain, listed, parts, scenes, tmp_path, monkeypatch):
    other, _ = parts
    clip = str(tiny_clip())
    for path, model, said in (
        (listed, "mini-matcher", "has no embeddings"),
        (other, clip, "are of model 'mini-matcher'"),
        (other, "no-such-model", "no-such-model"),
    ):
        with pytest.raises(GlitError, match=said):
            api.overlap(plain, path, model=model)
        with pytest.raises(GlitError, match=said):
            run_build(
                scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl",
                overrides=[
                    "exclude.enabled=true", f'exclude.lists=["{path}"]', f"exclude.model={model}",
                ],
            )  # fmt: skip
    for options, said in (({"cosine": 0.9}, "add --model"), ({"cosine": 2.0, "model": "x"}, "2.0")):
        with pytest.raises(UserError, match=said):
            api.overlap(plain, other, **options)
    blank = np.zeros((64, 64), np.uint8)
    damaged = Reference(
        name="a", sha256="0" * 64, thumbnail=blank, embedding=np.array([np.nan, 1], np.float32)
    )
    (tmp_path / "nan.parquet").write_bytes(list_bytes([damaged], model="m", sha256="0" * 64))
    with pytest.raises(InputError, match="an embedding is not finite"):
        open_references(str(tmp_path / "nan.parquet"))
    long = dataclasses.replace(damaged, embedding=np.array([40, 3], np.float32))
    (tmp_path / "long.parquet").write_bytes(list_bytes([long], model="m", sha256="0" * 64))
    with pytest.raises(InputError, match="an embedding is not of length 1"):
        open_references(str(tmp_path / "long.parquet"))

    def broken(self, pixels, **_):
        return None, torch.full((len(pixels), self.width), torch.nan)

    monkeypatch.setattr(ClipEncoder, "encode_images", broken)
    with pytest.raises(RunError, match="mini-matcher: its embedding of image 1 is not finite"):
        api.overlap(plain, other, model="mini-matcher")
    with pytest.raises(RunError, match="not finite"):
        api.references(listed.parent / "evaluation", tmp_path / "n.parquet", model="mini-matcher")
    assert not (tmp_path / "n.parquet").exists()


def test_a_changed_list_is_another_fingerprint(scenes, listed, tmp_path):
    def build():
        run_build(
            scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl", limit=3,
            overrides=["exclude.enabled=true", f'exclude.lists=["{listed}"]'],
        )  # fmt: skip
        return Dataset(str(tmp_path / "out")).manifest.fingerprints["exclude"]

    before = build()
    picture = thumbnail(decode((scenes / "images" / "000002.png").read_bytes()))
    listed.write_bytes(list_bytes([Reference(name="d", sha256="0" * 64, thumbnail=picture)]))
    shutil.rmtree(tmp_path / "out")
    assert build() != before


def test_files_that_are_no_lists(plain, scenes, tmp_path):
    for name, data, said in (
        ("none.parquet", None, "No such file"),
        ("text.parquet", b"text", "no list of references"),
        ("other.parquet", next((plain / "data").iterdir()).read_bytes(), "no list of references"),
    ):
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(InputError, match=said):
            open_references(str(path))
        with pytest.raises(InputError, match=said):
            api.overlap(plain, path)
    with pytest.raises(RecipeError, match="lists: found none"):
        run_build(
            scenes / "images", tmp_path / "o", captions=scenes / "captions.jsonl",
            overrides=["exclude.enabled=true"],
        )  # fmt: skip
    with pytest.raises(InputError, match="holds no image"):
        (tmp_path / "empty").mkdir()
        api.references(tmp_path / "empty", tmp_path / "list.parquet")
