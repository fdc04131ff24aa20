"""Datasets as a stranger could make them: hostile rows, manifests, images and names.

A case is a copy of a small finished dataset with some values changed and the manifest's digests
made right again, so that nothing but the values is wrong. Every command that reads a dataset gets
it. A refusal in one line is what is wanted; a find is anything else that is raised, a file that
appears outside the command's own output, or memory beyond a limit.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import os
import random
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from glit.api import evaluate, export, open_dataset, train
from glit.dataset.manifest import describe_data_file, describe_file
from glit.dataset.query import query
from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import GlitError
from glit.exporters import EXPORTERS
from glit.models import tokenizer
from glit.models.clip import kinds
from glit.plain import as_plain
from glit.view.explain import explain
from glit.view.report import write_report
from glit.view.server import DatasetSite
from tools.fuzz.mutate import mutated

_MOST_MEMORY = 2 << 30
_PEAK_RESET = Path("/proc/self/clear_refs")
_ROWS = 4
_NUMBERS = (0, 1, -1, 2**31 - 1, -(2**31), 10**6, 65_536)
_FLOATS = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e30, 1e-30)
_NAMES = (
    "../../escaped", "/tmp/glit-escaped", "..", "", "a/b", "a\0b", "x" * 300, "-rf", "CON",
    "f" * 63, "F" * 64, "g" * 64, "\u202egpj", "\x1b[2J", "../../../../../../dev/zero",
    "/proc/self/environ", "%2e%2e/x", "s3://bucket/x", "file:///etc/passwd",
)  # fmt: skip
_TEXTS = (
    "", " ", "\0", "\x1b]0;x\x07", "<script>alert(1)</script>", "a" * 200_000, "\u202e",
    ". " * 5000,
    "\U0001f469\u200d\U0001f4bb" * 300, "' OR 1=1 --", "{{7*7}}", "$(touch x)",
)  # fmt: skip
WHOLE = random.Random(0).randbytes(4096)
"""The case in which nothing is changed."""
Change = Callable[[dict[str, Any], random.Random], None]


def png_bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes a row whose pixels are all zero."""

    def part(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    packer, rows = zlib.compressobj(9), []
    line = bytes(1 + (width + 7) // 8)
    for _ in range(height):
        rows.append(packer.compress(line))
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    body = b"".join(rows) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", body) + part(b"IEND", b"")


def _pictures() -> list[bytes | None]:
    small = Image.linear_gradient("L").resize((24, 18))
    found: list[bytes | None] = [None, b"", b"\xff\xd8\xff", png_bomb(20_000, 20_000)]
    for kind in ("JPEG", "PNG", "GIF", "TIFF", "PPM", "EPS", "ICO", "TGA"):
        buffer = io.BytesIO()
        small.save(buffer, kind)
        found.append(buffer.getvalue())
    return found


_PICTURES = _pictures()


def _identity(row: dict[str, Any], rng: random.Random) -> None:
    row["sample_id"] = rng.choice(_NAMES)


def _path(row: dict[str, Any], rng: random.Random) -> None:
    row["source_path"] = rng.choice(_NAMES)
    if rng.random() < 0.7:
        row["image"] = {"bytes": None, "path": row["source_path"]}


def _picture(row: dict[str, Any], rng: random.Random) -> None:
    row["image"] = {"bytes": rng.choice(_PICTURES), "path": rng.choice(_NAMES)}


def _size(row: dict[str, Any], rng: random.Random) -> None:
    row[rng.choice(("width", "height"))] = rng.choice(_NUMBERS)


def _caption(row: dict[str, Any], rng: random.Random) -> None:
    row["caption"] = rng.choice(_TEXTS)


def _provenance(row: dict[str, Any], rng: random.Random) -> None:
    row["caption_source"] = dict(row["caption_source"] or {})
    row["caption_source"][rng.choice(("kind", "model", "revision"))] = rng.choice(_TEXTS + _NAMES)


def _nested(column: str) -> Change:
    """Change one value of a struct in a list, or the list's length."""

    def change(row: dict[str, Any], rng: random.Random) -> None:
        values = row[column]
        way = rng.random()
        if not values or way < 0.1:
            row[column] = []
        elif way < 0.2:
            row[column] = values * rng.choice((2, 400))
        else:
            value = rng.choice(values)
            field = rng.choice(sorted(value))
            value[field] = _other(value[field], rng)

    return change


def _other(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice(_NUMBERS)
    if isinstance(value, str):
        return rng.choice(_TEXTS + _NAMES)
    return rng.choice(_FLOATS)


def _similarity(row: dict[str, Any], rng: random.Random) -> None:
    name = rng.choice(("similarity", "image_similarity"))
    values = row[name] or []
    if rng.random() < 0.3:
        row[name] = values[: len(values) // 2] if rng.random() < 0.5 else values * 3
    elif values:
        values[rng.randrange(len(values))] = rng.choice(_FLOATS)


def _null(row: dict[str, Any], rng: random.Random) -> None:
    row[rng.choice(sorted(row))] = None


_ROW_CHANGES: tuple[Change, ...] = (
    _identity, _path, _path, _picture, _picture, _size, _caption, _provenance,
    _nested("sentences"), _nested("regions"), _nested("pairs"), _similarity, _null,
)  # fmt: skip


def _change_manifest(manifest: dict[str, Any], rng: random.Random) -> None:
    """Change a value somewhere in it."""
    at: Any = manifest
    while True:
        keys: list[Any] = sorted(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return
        key = rng.choice(keys)
        inner = at[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
            at = inner
            continue
        way = rng.random()
        if way < 0.2 and isinstance(at, dict):
            at[rng.choice(_NAMES)] = at.pop(key)
        elif way < 0.3:
            at[key] = rng.choice((None, [], {}, "x", 3, True))
        else:
            at[key] = _other(inner, rng) if not isinstance(inner, dict | list) else {}
        return


def _replace_file(path: Path, rng: random.Random) -> None:
    """Something that is no file, in the place of one."""
    path.unlink()
    way = rng.choice(("pipe", "device", "folder", "loop"))
    if way == "pipe":
        os.mkfifo(path)
    elif way == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if way == "device" else path)


def _memory(field: str) -> int:
    """Bytes of this process's memory as ``/proc/self/status`` names them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))


class Strangers:
    """What becomes of a stranger's dataset in every command that reads one.

    Args:
        folder: to work in; nothing may appear in it besides a case's own output.
        dataset: a finished one, without additions.
        model: folder of a small CLIP with the dataset's tokenizer, to train and to evaluate;
            None only reads, shows and exports.
    """

    def __init__(self, folder: Path, dataset: Path, model: Path | None) -> None:
        self._model = model
        self._clip = functools.cache(kinds.open_model)
        self._tokenizer = functools.cache(tokenizer.load_tokenizer)
        self._deep = folder / "a" / "b" / "c"
        shutil.rmtree(folder, ignore_errors=True)
        self._deep.mkdir(parents=True)
        (self._deep / "images").mkdir()
        self._root = folder
        opened = Dataset(dataset)
        self._schema = opened.schema
        self._rows = opened.row_group(0).table.slice(0, _ROWS).to_pylist()
        self._manifest = opened.manifest
        self._others = {
            name: (dataset / name).read_bytes() for name in ("drops.parquet", "duplicates.parquet")
        }

    def __call__(self, data: bytes) -> str:
        """Bytes are the seed of a case."""
        dataset, out = self._deep / "dataset", self._deep / "out"
        for each in (dataset, out):
            shutil.rmtree(each, ignore_errors=True)
        self._write(dataset, data)
        out.mkdir()
        before = self._listing(out)
        _PEAK_RESET.write_text("5")
        resident = _memory("VmRSS")
        said = []
        with self._model_read_once():
            for name, command in self._commands(dataset, out).items():
                with contextlib.chdir(out):  # relative names lead to where they are seen
                    said.append(f"{name} {_outcome(command)}")
        after = self._listing(out)
        assert after == before, f"outside of the output: {sorted(after ^ before)[:3]}"
        assert not Path("/tmp/glit-escaped").exists(), "an absolute name was written to"
        grown = _memory("VmHWM") - resident
        assert grown < _MOST_MEMORY, f"{grown >> 20} MB of memory"
        refused = sum("taken" not in each for each in said)
        return f"refused by {refused} of {len(said)}" if refused else "taken"

    @contextlib.contextmanager
    def _model_read_once(self) -> Iterator[None]:
        """The model is nobody's but ours: a case gets a copy of what the first one read."""
        with (
            mock.patch.object(kinds, "open_model", lambda path: copy.deepcopy(self._clip(path))),
            mock.patch.object(tokenizer, "load_tokenizer", self._tokenizer),
        ):
            yield

    def _write(self, dataset: Path, data: bytes) -> None:
        rng, rows = random.Random(data), copy.deepcopy(self._rows)
        manifest = self._manifest.as_dict()
        for _ in range(0 if data == WHOLE else rng.choice((0, 1, 1, 2, 3))):
            rng.choice(_ROW_CHANGES)(rng.choice(rows), rng)
        table = pa.Table.from_pylist(rows, schema=self._schema)
        (dataset / "data").mkdir(parents=True)
        path = dataset / "data" / "train-00000-of-00001.parquet"
        options = {"compression": "zstd", "use_dictionary": rng.random() < 0.5}
        pq.write_table(table, path, row_group_size=rng.choice((1, 2, 100)), **options)
        if data != WHOLE and rng.random() < 0.15:
            path.write_bytes(mutated([path.read_bytes()], rng))
        for name, other in self._others.items():
            (dataset / name).write_bytes(other)
        counts = manifest["counts"]
        counts["ingested"] += _ROWS - counts["shipped"]
        counts["shipped"] = _ROWS
        described = {name: manifest["files"][name] for name in self._others}
        try:
            described[f"data/{path.name}"] = as_plain(describe_data_file(path, _ROWS))
        except (ValueError, TypeError, OSError, pa.ArrowException):  # damaged, or null
            described[f"data/{path.name}"] = {
                **as_plain(describe_file(path, _ROWS)),
                "without_pair": 0,
            }
        manifest["files"] = described
        counts["without_pair"] = described[f"data/{path.name}"]["without_pair"]
        if data != WHOLE and rng.random() < 0.25:
            _change_manifest(manifest, rng)
        (dataset / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        if data != WHOLE and rng.random() < 0.05:
            _replace_file(dataset / rng.choice([*described, "manifest.json"]), rng)

    def _listing(self, out: Path) -> set[str]:
        kept = {str(out), str(self._deep / "dataset")}
        found = set()
        for folder, folders, files in os.walk(self._root):
            folders[:] = [name for name in folders if f"{folder}/{name}" not in kept]
            found |= {f"{folder}/{name}" for name in files + folders}
        return found

    def _commands(self, dataset: Path, out: Path) -> dict[str, Callable[[], object]]:
        where, images = str(dataset), str(self._deep / "images")
        found: dict[str, Callable[[], object]] = {
            "verify": lambda: list(verify(where)),
            "view": lambda: write_report(_open(where, images), out / "report.html"),
            "serve": lambda: _serve(_open(where, images)),
            "explain": lambda: explain(_open(where, images), self._rows[0]["source_path"]),
            "query": lambda: query(where, "SELECT * FROM pairs JOIN samples USING (sample_id)"),
        }
        for to in EXPORTERS:
            found[to] = lambda to=to: export(where, to=to, output=out / to, image_root=images)
        if self._model is not None:
            found["train"] = lambda: self._train(where, out / "run", images)
            for task in ("retrieval", "localize"):
                found[task] = lambda task=task: self._evaluate(task, where, images)
        return found

    def _train(self, dataset: str, run: Path, images: str) -> None:
        settings = [
            f"train.model={self._model}", "train.batch_size=2", "train.epochs=1",
            f"train.image_root={images}", "train.trackers=[]", "train.num_workers=1",
        ]  # fmt: skip
        train(dataset, run, recipe="fast-goal", settings=settings)

    def _evaluate(self, task: str, dataset: str, images: str) -> None:
        settings = [f"evaluate.image_root={images}", "evaluate.num_workers=1"]
        evaluate(task, [str(self._model)], dataset, settings=settings)


def _open(dataset: str, images: str) -> Dataset:
    return open_dataset(dataset, image_root=images)


def _serve(dataset: Dataset) -> None:
    site = DatasetSite(dataset)
    try:
        for address in ("/", "/numbers", "/samples?first=0", "/dropped?first=0", "/image/0"):
            try:
                site.answer(address)
            except GlitError:
                continue
    finally:
        site.close()


def _outcome(command: Callable[[], object]) -> str:
    try:
        command()
    except GlitError as error:
        assert "\n" not in str(error), f"more than a line: {error!r}"
        return type(error).__name__
    return "taken"
