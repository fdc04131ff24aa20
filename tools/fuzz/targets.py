"""What reads files and texts from outside, and what it may say of them."""

from __future__ import annotations

import io
import json
import math
import pickle
import random
import shutil
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import GlitError
from glit.images import ImageError, decode
from glit.inputs.files import ImageFiles
from glit.inputs.importers import import_captions, regions_file
from glit.inputs.published.user_regions import read_regions
from glit.inputs.region_file import read_region_file
from glit.inputs.source import entries, find_source
from glit.inputs.user_captions import read_captions
from glit.models.backends.proposers.sa1b import Sa1bReader
from glit.models.backends.protocols import ProposerConfig
from glit.models.tokenizer import TextTokenizer
from glit.models.weights import resolve
from glit.pipeline.planning.lock import read_lock
from glit.pipeline.planning.recipe import load_recipe
from glit.pipeline.work.tables import read_table
from glit.recipes.resources import builtin_calibrations, builtin_recipes
from glit.review.label.verdicts import read_verdicts
from glit.rules.calibration import read_calibration
from glit.stages.ingest import IngestConfig, ingest
from glit.stages.split import SplitConfig, SplitStage
from glit.storage.checksummed_parquet import write_sealed
from glit.storage.members import stem
from glit.storage.store import Entry, Store
from glit.text.faults import caption_fault
from glit.view.page_file import json_for_html
from tools.fuzz import grammars
from tools.fuzz.strangers import WHOLE, Strangers

Check = Callable[[bytes], str]
"""Bytes to what became of them: ``taken``, or the kind of refusal. Anything raised is a find."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A reader and good inputs for it."""

    corpus: Sequence[bytes]
    check: Check
    seconds: float = 5.0
    """The longest a case may take."""
    make: Callable[[random.Random], bytes] | None = None
    """Makes a case by rules of its own; without it good inputs are mutated."""


def targets(
    folder: Path, dataset: Path, captions: Path, model: Path | None = None
) -> dict[str, Target]:
    """All of them by name.

    Args:
        folder: to write cases to.
        dataset: a small finished one; a copy of it is damaged.
        captions: scenes' captions, as JSON lines.
        model: a small CLIP of the dataset's tokenizer; strangers' datasets are trained on with it.
    """
    lines = captions.read_bytes().splitlines(keepends=True)
    texts, first = [json.loads(line)["caption"] for line in lines], lines[:4]
    damaged = folder / "dataset"
    shutil.copytree(dataset, damaged, dirs_exist_ok=True, ignore=shutil.ignore_patterns("work"))
    manifest = (dataset / "manifest.json").read_bytes()
    [*_, path] = sorted((dataset / "data").iterdir())
    data, name = path.read_bytes(), f"data/{path.name}"
    lists = [b"a.png\nb.png\n", b"path,x\na.png,1\n", b'{"path": "a.png"}\n{"path": "b.png"}']
    lock = b'{"format": "glit-lock", "version": 1, "models": {"matcher": {"name": "m"}}}'
    recipes = [path.read_bytes() for path in builtin_recipes().values()]
    calibrations = [path.read_bytes() for path in builtin_calibrations().values()]
    found: dict[str, tuple[Sequence[bytes], Check]] = {
        "images": (_pictures(), _Images(folder)),
        "damaged pixels": (_photographs(), _Damage()),
        "captions.jsonl": ([b"".join(first)], _captions(folder, ".jsonl")),
        **{f"imports: {name}": _import(folder, name) for name in _IMPORTED},
        "regions.jsonl": ([_REGIONS], _regions(folder)),
        "region files": ([_REGION_FILE], _region_files),
        "verdicts": ([_VERDICTS], _file(folder / "verdicts.jsonl", read_verdicts)),
        "captions.csv": ([_csv(texts[:4])], _captions(folder, ".csv")),
        "captions.parquet": ([_parquet(texts[:8])], _captions(folder, ".parquet")),
        "caption texts": ([text.encode() for text in texts[:40]] + _ODD_TEXTS, _Texts()),
        "tars": ([_tar(texts[:2])], _shard(folder / "x.tar")),
        "tables of images": ([_table_of_images()], _shard(folder / "x.parquet")),
        "recipes": (recipes, _file(folder / "x.toml", lambda path: load_recipe(str(path)))),
        "lists": (lists, _lists(folder)),
        "masks": (_masks(), _masks_are_read),
        "tables of a build": ([_sealed(folder)], _Tables(folder)),
        "manifests": ([manifest], _dataset(damaged, "manifest.json", manifest)),
        "data files": ([data], _dataset(damaged, name, data)),
        "locks": ([lock], _file(folder / "x.lock.json", read_lock)),
        "calibrations": (calibrations, _file(folder / "x.json", read_calibration)),
    }
    known = {name: Target(corpus=corpus, check=check) for name, (corpus, check) in found.items()}
    strangers = Strangers(folder / "strangers", dataset, model)
    statements = grammars.Statements(dataset, folder)
    own = {
        "strangers' datasets": Target(corpus=[WHOLE], check=strangers, seconds=60),
        "recipes of keys": Target(
            corpus=[b'base = "mini"'], check=grammars.Recipes(folder), make=grammars.recipe
        ),
        "statements": Target(
            corpus=[b"SELECT count(*) FROM pairs"], check=statements, make=statements.make
        ),
    }
    if model is not None:
        keys = grammars.Checkpoints(model, folder)
        own["checkpoints"] = Target(corpus=keys.whole(), check=keys, seconds=30, make=keys.make)
    return known | own


_REGIONS = (
    b'{"path": "a.png", "box_xyxy": [1, 2, 9, 9], "width": 80, "height": 60, "score": 0.5}\n'
    b'{"path": "b.png", "box_cxcywhn": [0.5, 0.5, 0.25, 1], "phrases": [[2, 5, "cat"], "A"]}\n'
)
_REGION_FILE = (
    b'{"width": 80, "height": 60, "regions": [{"box": [1, 2, 9, 9], "sentences": ["A cat.", [0, 3]]'
    b'}, {"box_xywhn": [0, 0, 0.25, 1], "mask": {"size": [30, 40], "counts": [0, 300, 900]}}]}'
)
_VERDICTS = b'{"sample_id": "a", "sentence": 0, "region": 1, "verdict": "right"}\n' * 2


_IMPORTED = ("odvg", "mdetr", "refcoco", "visual-genome", "coco")


def _import(folder: Path, name: str) -> tuple[Sequence[bytes], Check]:
    """Annotations of two images, one of which states another size than it has."""
    images = folder / name
    images.mkdir(parents=True, exist_ok=True)
    for number in range(2):
        Image.new("RGB", (40, 30 + 10 * number)).save(images / f"{number}.jpg")

    def read(path: Path) -> None:
        output = folder / f"{name}.out.jsonl"
        import_captions(name, path, output, images=images)
        lines, boxes = output.read_text(encoding="utf-8").splitlines(), regions_file(output)
        longest = max(len(json.loads(line)["caption"]) for line in lines)
        lines = boxes.read_text(encoding="utf-8").splitlines() if boxes.exists() else []
        for row in map(json.loads, lines):
            x0, y0, x1, y1 = row["box_xyxy"]
            assert 0 <= x0 < x1 <= 40 and 0 <= y0 < y1 <= 40, row
            assert all(0 <= a < b <= longest for a, b in row.get("phrases", ())), row

    return [_published(images, name)], _file(images / "annotations", read)


def _published(images: Path, name: str) -> bytes:
    """The file of annotations; what belongs beside it is written into the folder."""
    size = {"width": 80, "height": 60}
    caption = "Cafe\u0301 and a cat by a red door."
    if name == "odvg":
        region = {"bbox": [1, 2, 9, 9], "phrase": "a cat", "tokens_positive": [[10, 15]]}
        grounding = {"caption": caption, "regions": [region, {**region, "tokens_positive": None}]}
        lines = [{"filename": f"{n}.jpg", **size, "grounding": grounding} for n in range(2)]
        return "".join(json.dumps(line) + "\n" for line in lines).encode()
    if name == "visual-genome":
        region = {"x": 1, "y": 2, "width": 9, "height": 9, "phrase": "a cat"}
        sizes = [{"image_id": n, **size} for n in range(2)]
        (images / "image_data.json").write_text(json.dumps(sizes))
        return json.dumps([{"id": n, "regions": [region]} for n in range(2)]).encode()
    entries = [{"id": n, "file_name": f"{n}.jpg", "caption": caption, **size} for n in range(2)]
    box = {"id": 5, "image_id": 0, "bbox": [1, 2, 9, 9], "category_id": 1, "caption": caption}
    box["tokens_positive"] = [[10, 15]]
    kinds = [{"id": 1, "name": "cat"}]
    whole = json.dumps({"images": entries, "annotations": [box], "categories": kinds}).encode()
    if name != "refcoco":
        return whole
    (images / "instances.json").write_bytes(whole)
    said = [{"sent": "a cat"}, {"sent": "cat by the door"}]
    ref = {"ref_id": 3, "split": "train", "image_id": 0, "ann_id": 5, "sentences": said}
    return pickle.dumps([ref], protocol=2)


def _regions(folder: Path) -> Check:
    return _file(folder / "r.jsonl", lambda path: list(read_regions(path, str(folder))))


def _region_files(data: bytes) -> str:
    try:
        found = read_region_file(data.decode("utf-8", "replace"), width=40, height=30)
    except ValueError:
        return "ValueError"
    for each in found:
        x0, y0, x1, y1 = each.region.box.xyxy
        assert 0 <= x0 < x1 <= 40 and 0 <= y0 < y1 <= 30, each
    return "taken"


def _file(path: Path, read: Callable[[Path], object]) -> Check:
    def check(data: bytes) -> str:
        path.write_bytes(data)
        try:
            read(path)
        except GlitError as error:
            return type(error).__name__
        return "taken"

    return check


def _pictures() -> list[bytes]:
    rng = np.random.default_rng(0)
    pixels = np.kron(rng.integers(0, 255, (6, 8, 3), np.uint8), np.ones((5, 5, 1), np.uint8))
    colour = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[0x0112] = 6
    ways: list[tuple[Image.Image, dict]] = [
        (colour, {"format": "JPEG"}),
        (colour, {"format": "JPEG", "progressive": True, "exif": exif}),
        (colour.convert("L"), {"format": "JPEG"}),
        (colour.convert("CMYK"), {"format": "JPEG"}),
        (colour, {"format": "PNG"}),
        (colour.convert("P"), {"format": "PNG"}),
        (colour.convert("RGBA"), {"format": "PNG"}),
        (Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 257), {"format": "PNG"}),
        (colour, {"format": "WEBP"}),
        (colour, {"format": "WEBP", "lossless": True}),
        (colour, {"format": "TIFF"}),
        (colour, {"format": "TIFF", "compression": "tiff_lzw"}),
        (colour, {"format": "TIFF", "compression": "jpeg"}),
        (colour, {"format": "BMP"}),
        (colour.convert("P"), {"format": "GIF"}),
        (colour, {"format": "GIF", "save_all": True, "append_images": [colour.rotate(90)]}),
    ]
    files = []
    for image, options in ways:
        buffer = io.BytesIO()
        image.save(buffer, **options)
        files.append(buffer.getvalue())
    return files


class _Images:
    """A row of ingest for every file: a size or a reason."""

    def __init__(self, folder: Path) -> None:
        self._store = Store(folder)
        self._path = folder / "image"
        self._config = IngestConfig(min_side=1, max_pixels=4_000_000, near_duplicates=2)

    def __call__(self, data: bytes) -> str:
        self._path.write_bytes(data)
        entry = Entry(path="image", size=len(data), stamp="")
        [row] = ingest([entry], self._store, self._config, threads=1)
        if row.get("drop"):
            return row["drop"]["reason"]
        assert 0 < row["width"] * row["height"] <= self._config.max_pixels, row
        pixels = decode(data)
        assert pixels.shape == (row["height"], row["width"], 3) and pixels.dtype == np.uint8
        return "taken"


_SIDE = 160


def _photographs() -> list[bytes]:
    """A smooth picture with edges in every format that has something to check, its name first."""
    rng = np.random.default_rng(1)
    coarse = Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8))
    picture = coarse.resize((_SIDE, _SIDE), Image.Resampling.BICUBIC)
    picture.paste((200, 30, 30), (30, 40, 90, 110))
    files = []
    for format, options in (
        ("JPEG", {"quality": 90}), ("JPEG", {"progressive": True}), ("PNG", {}), ("WEBP", {}),
        ("WEBP", {"lossless": True}), ("TIFF", {"compression": "tiff_adobe_deflate"}),
        ("TIFF", {"compression": "tiff_lzw"}), ("GIF", {}), ("AVIF", {}),
    ):  # fmt: skip
        buffer = io.BytesIO()
        picture.save(buffer, format, **options)
        files.append(buffer.getvalue())
    return files


class _Damage:
    """What a damaged file decodes to, beside what it was: the pixels are the judge.

    A PNG has checksums everywhere, so that one that is wrong is a find; of the others the wrong
    ones are counted.
    """

    def __init__(self) -> None:
        self._whole = {file[:64]: decode(file).astype(float) for file in _photographs()}

    def __call__(self, data: bytes) -> str:
        try:
            found = decode(data).astype(float)
        except ImageError as error:
            return error.reason
        named = Image.open(io.BytesIO(data)).format
        beside = [each for head, each in self._whole.items() if head == data[:64]]
        if not beside:
            return "taken; its head is another"
        if found.shape == beside[0].shape:
            wrong = (np.abs(found - beside[0]).max(axis=2) > 32).mean()
            if wrong < 0.002:
                return "taken"
        assert named != "PNG", "a damaged PNG is wrong"
        return f"wrong: {named}"


def _csv(texts: Sequence[str]) -> bytes:
    rows = "".join(f'{number}.png,"{text}"\n' for number, text in enumerate(texts))
    return f"path,caption\n{rows}".encode()


def _parquet(texts: Sequence[str]) -> bytes:
    buffer = io.BytesIO()
    paths = [f"{number}.png" for number in range(len(texts))]
    pq.write_table(pa.table({"path": paths, "caption": list(texts)}), buffer)
    return buffer.getvalue()


def _captions(folder: Path, suffix: str) -> Check:
    def read(path: Path) -> None:
        for name, caption, *_ in read_captions(path, str(folder)):
            name.encode()
            (caption or "").encode()

    return _file(folder / f"captions{suffix}", read)


_ODD_TEXTS = [
    text.encode()
    for text in (
        'He said "Stop. Now." (Really?) Mr. Smith Jr. left at 5 p.m. It was 3.5 m... wide!',
        "\u4e2d\u6587\u3002\u53e5\u5b50\uff01",
        "\u0627\u0644\u0639\u0631\u0628\u064a\u0629. \u0939\u093f\u0928\u094d\u0964",
        "e\u0301\u200d\U0001f469\u200d\U0001f4bb. \u202eabc\u202c! ffi \ufb03 \u2160. A\u00a0b.\tC",
        "</script><img src=x onerror=alert(1)> <!-- & -->",
        "- one\n- two\n\n1. three\n2. four\n\n# Five\n| a | b |",
    )
]


class _Texts:
    """A caption's faults, its sentences in two languages and their tokens; as part of a page."""

    def __init__(self) -> None:
        tokenizer = TextTokenizer(resolve("mini-matcher", "main").path)
        self._stages = [SplitStage(SplitConfig(language=each), tokenizer) for each in ("en", "zh")]

    def __call__(self, data: bytes) -> str:
        text = data.decode("utf-8", "replace")
        assert "</" not in json_for_html({"caption": text})
        fault = caption_fault(text)
        for stage in self._stages:
            position, token = 0, 0
            for sentence in stage.sentences(text):
                assert position <= sentence.char_start < sentence.char_end <= len(text), sentence
                assert sentence.text == text[sentence.char_start : sentence.char_end]
                assert token <= sentence.token_start <= sentence.token_end, sentence
                position, token = sentence.char_end, sentence.token_start
        return fault or "taken"


def _lists(folder: Path) -> Check:
    names = [folder / f"list{suffix}" for suffix in (".txt", ".csv", ".jsonl")]

    def check(data: bytes) -> str:
        said = []
        for path in names:
            path.write_bytes(data)
            try:
                for entry in entries(find_source(str(path))):
                    assert not entry.path.startswith("../"), entry
                said.append("taken")
            except GlitError as error:
                said.append(type(error).__name__)
        return ", ".join(said)

    return check


def _tar(texts: Sequence[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for number, text in enumerate(texts):
            for suffix, data in ((".png", b"1" * 600), (".txt", text.encode())):
                info = tarfile.TarInfo(f"{'ü' * 60 * number}{number}{suffix}")
                info.size, info.mtime = len(data), 1.5
                archive.addfile(info, io.BytesIO(data))
        end = archive.offset + 2 * tarfile.BLOCKSIZE
    return buffer.getvalue()[:end]


def _table_of_images() -> bytes:
    buffer = io.BytesIO()
    images = [{"bytes": bytes([n]) * 50, "path": "x.png"} for n in range(6)]
    table = pa.table({"image": images, "caption": ["a", "ü", None, "b", "c", "d"]})
    pq.write_table(table, buffer, row_group_size=2)
    return buffer.getvalue()


def _shard(path: Path) -> Check:
    """Every member that is listed is read, or refused by an OSError, and its caption too."""

    def check(data: bytes) -> str:
        path.write_bytes(data)
        said = set()
        try:
            found = list(entries(find_source(str(path))))
        except GlitError as error:
            return type(error).__name__
        files = ImageFiles(str(path.parent))
        for entry in found[:20]:
            if entry.size < 0:
                said.add("refused")
                continue
            for name in (entry.path, f"{stem(entry.path)}.txt"):
                try:
                    files.read(name)
                except (OSError, UnicodeDecodeError) as error:
                    if name == entry.path:  # a caption may be missing
                        said.add(type(error).__name__)
        return ", ".join(sorted(said)) or ("taken" if found else "nothing")

    return check


_WIDTH, _HEIGHT = 40, 30


def _masks() -> list[bytes]:
    import pycocotools.mask

    annotations = []
    for number in range(4):
        mask = np.zeros((_HEIGHT, _WIDTH), np.uint8, order="F")
        mask[number : number + 12, 2 * number : 20] = 1
        coded: Any = pycocotools.mask.encode(mask)
        size = {"size": [_HEIGHT, _WIDTH], "counts": coded["counts"].decode()}
        annotations.append({"segmentation": size, "predicted_iou": 0.9 - number / 10})
    runs = {"size": [_HEIGHT, _WIDTH], "counts": [100, 200, 900]}
    annotations.append({"segmentation": runs, "predicted_iou": 1})
    return [json.dumps({"annotations": annotations}).encode()]


def _masks_are_read(data: bytes) -> str:
    reader = Sa1bReader(ProposerConfig())
    try:
        regions = reader.read(data.decode("utf-8-sig"), width=_WIDTH, height=_HEIGHT)
    except ValueError as error:
        return type(error).__name__
    for region in regions:
        box = region.box
        assert 0 <= box.x0 < box.x1 <= _WIDTH and 0 <= box.y0 < box.y1 <= _HEIGHT, box
        assert math.isfinite(region.score), region
    return "taken"


def _sealed(folder: Path) -> bytes:
    table = pa.table({"sample_id": ["a", "b"], "drop": ["", None], "value": [1.5, 2.5]})
    write_sealed(table, folder / "sealed.parquet")
    return (folder / "sealed.parquet").read_bytes()


class _Tables:
    """Only what was written is taken."""

    def __init__(self, folder: Path) -> None:
        self._path, self._store = folder / "table.parquet", Store(folder)
        self._whole = _sealed(folder)

    def __call__(self, data: bytes) -> str:
        self._path.write_bytes(data)
        try:
            read_table(self._store, "table.parquet")
        except GlitError as error:
            return type(error).__name__
        assert data.rstrip(b"\0") == self._whole.rstrip(b"\0"), "a damaged table was read"
        return "taken"


def _dataset(folder: Path, name: str, whole: bytes) -> Check:
    """The file in a finished dataset, opened and verified."""

    def check(data: bytes) -> str:
        try:
            return _opened_and_verified(folder, name, data, whole)
        finally:
            (folder / name).write_bytes(whole)

    return check


def _opened_and_verified(folder: Path, name: str, data: bytes, whole: bytes) -> str:
    (folder / name).write_bytes(data)
    said = "taken"
    try:
        for row in Dataset(str(folder)).rows(images=False):
            assert row.regions is not None and row.sentences is not None and row.pairs is not None
    except GlitError as error:
        said = type(error).__name__
    try:
        breaches = list(verify(str(folder)))
    except GlitError as error:
        return type(error).__name__
    assert name == "manifest.json" or data == whole or breaches, "a damaged file was verified"
    return said if not breaches else f"{said}, found by verify"
