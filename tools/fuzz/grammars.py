"""Inputs that are well formed and odd: recipes, statements and checkpoints, each with a judge."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
import shutil
import tomllib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from glit.dataset.query import query
from glit.errors import GlitError
from glit.models.backends.base import Backend
from glit.models.clip.image_processor import read_preprocessing
from glit.models.clip.kinds import open_model
from glit.models.clip.preprocess import fit_image
from glit.pipeline.planning.recipe import load_recipe
from glit.recipes.config import identity
from glit.stages import all_steps

_VALUES: tuple[Any, ...] = (
    True, False, 0, 1, -1, 7, 0.5, 1e300, "", "clip", "grid", "vllm", "endpoint", "mini-matcher",
    "http://127.0.0.1:1/v1", "http://elsewhere.example/v1", "HOME", "/etc/hostname", "../x.txt", [],
    ["long", "short"], [0.1, 0.2],
)  # fmt: skip
_FAR = ("elsewhere.example", "HOME", "/etc/hostname", "../x.txt")


def recipe(rng: random.Random) -> bytes:
    """A recipe of a few known tables and keys, of whose values some do not fit."""
    steps = rng.sample(list(all_steps()), rng.randrange(1, 4))
    lines = [f'base = "{rng.choice(("mini", "glit", "lism", "annotated"))}"']
    for step in steps:
        lines.append(f"[{step.name}]")
        keys = [*_keys(step.config), *_of_options(step.config), "x y"]
        for key in rng.sample(keys, min(len(keys), rng.randrange(1, 5))):
            usual = getattr(step.config(), key, None)
            value = usual if usual not in (None, {}) and rng.random() < 0.8 else rng.choice(_VALUES)
            if isinstance(value, int | float) and not isinstance(value, bool):
                value *= rng.choice((1, 1, 2, 3))
            lines.append(f"{json.dumps(key)} = {json.dumps(value)}")
    return "\n".join(lines).encode()


def _of_options(config: type) -> list[str]:
    choice = getattr(config, "choice", None)
    kinds = [kind for kind in choice.options().values() if kind] if choice else []
    return sorted({key for kind in kinds for key in _keys(kind)})


def _keys(config: type) -> list[str]:
    return [each.name for each in dataclasses.fields(config) if each.init]


class Recipes:
    """A recipe that is taken asks for nothing that only the user may ask for."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "grammar.toml"

    def __call__(self, data: bytes) -> str:
        self._path.write_bytes(data)
        try:
            with warnings.catch_warnings(action="ignore"):  # of keys that a choice does not use
                found = load_recipe(str(self._path))
        except GlitError as error:
            return type(error).__name__
        own = tomllib.loads(data.decode())
        for step in all_steps():
            told, config = own.get(step.name, {}), getattr(found, step.name)
            identity(config)  # it can be written down
            backend = step.backend(config)
            assert backend is None or isinstance(backend, Backend)
            assert not told.get("allow_pickle"), told
            for key in ("api_key_env", "endpoint", "prompt"):
                assert not str(told.get(key, "")).endswith(_FAR), told
        return "taken"


_TABLES = ("samples", "sentences", "regions", "pairs", "drops", "duplicates", "nothing")
_COLUMNS = ("sample_id", "text", "rank", "similarity", "s.text", "*", "sentences", "rowid")
_PLAIN = ("*", "1", "count(*)", "(SELECT max(rank) FROM pairs)", "NULL")
_FUNCTIONS = (
    "count", "max", "read_parquet", "read_csv", "read_text", "read_blob", "glob", "unnest", "range",
    "query", "query_table", "duckdb_settings", "sniff_csv", "parquet_metadata", "getenv", "list",
    "json_execute_serialized_sql", "current_setting", "lower", "repeat", "which_secret",
)  # fmt: skip


class Statements:
    """SQL from a grammar; whatever it is, the files stay and nothing beside them is told."""

    def __init__(self, dataset: Path, folder: Path) -> None:
        self._dataset, self._outside = dataset, folder / "outside"
        self._outside.mkdir(exist_ok=True)
        (self._outside / "secret.csv").write_text("secret\ntop-secret-words\n")
        self._before = self._state()
        files = (dataset / "data").iterdir()
        outside = [str(self._outside / name) for name in ("secret.csv", "new.parquet")]
        self._paths = [*outside, *map(str, files), "/etc/hostname"]

    def make(self, rng: random.Random) -> bytes:
        return self._statement(rng, 3).encode()

    def __call__(self, data: bytes) -> str:
        try:
            found = query(str(self._dataset), data.decode("utf-8", "replace"))
            rows = str(found.limit(50).fetchall())
            said = "taken"
        except GlitError as error:
            rows, said = "", type(error).__name__
        assert "top-secret-words" not in rows, rows
        assert self._state() == self._before, "the files are others"
        return said

    def _state(self) -> dict[str, str]:
        files = [
            path
            for folder in (self._dataset, self._outside)
            for path in folder.rglob("*")
            if path.is_file() and "work" not in path.parts
        ]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def _statement(self, rng: random.Random, depth: int) -> str:
        path = rng.choice(self._paths)

        def inner() -> str:
            return self._select(rng, depth - 1)

        ways = (
            lambda: f"COPY ({inner()}) TO '{path}' (FORMAT parquet)",
            lambda: f"COPY samples FROM '{path}'",
            lambda: f"INSERT INTO samples {inner()}",
            lambda: f"CREATE TABLE t AS {inner()}",
            lambda: f"ATTACH '{path}' AS x",
            lambda: f"SET {rng.choice(('allowed_paths', 'home_directory', 'threads'))} = '{path}'",
            lambda: f"EXPORT DATABASE '{self._outside}'",
            lambda: f"{inner()}; {self._statement(rng, depth - 1)}",
            lambda: f"EXPLAIN ANALYZE {self._statement(rng, depth - 1)}",
            lambda: f"PREPARE p AS {inner()}",
            lambda: "DELETE FROM samples RETURNING *",
            lambda: "PIVOT pairs ON rank USING count(*)",
            lambda: f"DESCRIBE {inner()}",
        )
        return rng.choice(ways)() if depth > 0 and rng.random() < 0.25 else self._select(rng, depth)

    def _select(self, rng: random.Random, depth: int) -> str:
        head = ""
        if depth > 0 and rng.random() < 0.4:
            kind = rng.choice(("", "MATERIALIZED ", "NOT MATERIALIZED "))
            head = f"WITH c AS {kind}({self._statement(rng, depth - 1)}) "
        what = ", ".join(self._expression(rng, depth) for _ in range(rng.randrange(1, 3)))
        tail = f" WHERE {self._expression(rng, depth)}" if rng.random() < 0.4 else ""
        tail += rng.choice(("", "", " LIMIT 3", " ORDER BY ALL", " USING SAMPLE 2"))
        return f"{head}SELECT {what} FROM {self._table(rng, depth)}{tail}"

    def _table(self, rng: random.Random, depth: int) -> str:
        ways = [
            lambda: rng.choice((*_TABLES, "c")),
            lambda: f"'{rng.choice(self._paths)}'",
            lambda: f"{rng.choice(_FUNCTIONS)}({self._expression(rng, 0)})",
            lambda: f"{rng.choice(_FUNCTIONS)}('{rng.choice(self._paths)}')",
        ]
        if depth > 0:
            ways += [lambda: f"({self._statement(rng, depth - 1)}) AS n"]
            ways += [lambda: f"query('{self._select(rng, 0).replace(chr(39), chr(39) * 2)}')"]
        return rng.choice(ways)() if rng.random() < 0.3 else rng.choice(_TABLES[:-1])

    def _expression(self, rng: random.Random, depth: int) -> str:
        ways = [
            *[lambda: rng.choice(_PLAIN)] * 4,
            lambda: rng.choice(_COLUMNS),
            lambda: rng.choice(("1", "NULL", "true", "'a'", "[1, 2]", "{'a': 1}", "$1", "-1e400")),
            lambda: f"{rng.choice(_FUNCTIONS)}({rng.choice(_COLUMNS)})",
            lambda: f"{rng.choice(_FUNCTIONS)}('{rng.choice(self._paths)}')",
        ]
        if depth > 0:
            ways += [lambda: f"({self._statement(rng, depth - 1)})"]
            ways += [lambda: f"list_transform([1], x -> ({self._select(rng, 0)}))"]
        return rng.choice(ways)()


_PICTURES = [
    np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8)
    for seed, (height, width) in enumerate(((32, 32), (40, 57), (64, 33)))
]


class Checkpoints:
    """A CLIP folder with one key of one of its files changed: refused, or transformers' features.

    The same folder is opened by transformers' own classes, which read every key; where those
    cannot open it, or make no finite features, nothing is asked.
    """

    def __init__(self, model: Path, folder: Path) -> None:
        self._whole, self._folder = model, folder / "checkpoint"
        names = ("config.json", "preprocessor_config.json")
        self.files = {name: json.loads((model / name).read_text()) for name in names}

    def whole(self) -> list[bytes]:
        """Both files as they are."""
        return [
            json.dumps({"file": name, "values": self.files[name]}).encode() for name in self.files
        ]

    def make(self, rng: random.Random) -> bytes:
        name = rng.choice(list(self.files))
        values = json.loads(json.dumps(self.files[name]))
        table = values
        while True:
            key = rng.choice(sorted(table))
            if not isinstance(table[key], dict) or rng.random() < 0.3:
                break
            table = table[key]
        if rng.random() < 0.2:
            del table[key]
        else:
            table[key] = self._other(rng, table[key])
        return json.dumps({"file": name, "values": values}).encode()

    def _other(self, rng: random.Random, value: Any) -> Any:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int | float) and rng.random() < 0.7:
            return rng.choice((value * 2, value + 1, value / 2, 0, -value, 1e-3))
        if isinstance(value, list) and value and rng.random() < 0.7:
            return [each * 0.5 if isinstance(each, float) else each for each in value]
        return rng.choice((None, "", "gelu", "x", 1, 0.1, [], {}, {"height": 24, "width": 40},
                           {"shortest_edge": 40}, [0.5, 0.5, 0.5]))  # fmt: skip

    def __call__(self, data: bytes) -> str:
        changed = json.loads(data)
        shutil.copytree(self._whole, self._folder, dirs_exist_ok=True)
        (self._folder / changed["file"]).write_text(json.dumps(changed["values"]))
        try:
            own = self._features()
        except GlitError as error:
            return type(error).__name__
        try:
            with torch.no_grad():
                theirs = self._of_transformers()
        except Exception as error:  # noqa: BLE001 - whatever another library says of odd values
            return f"taken, though transformers says {type(error).__name__}"
        if not torch.isfinite(theirs).all():
            return "taken; not finite"
        least = torch.nn.functional.cosine_similarity(own, theirs).min()
        assert least > 0.999, f"{changed['file']}: cosine {least:.3f} with transformers' own"
        return "taken"

    @torch.no_grad()
    def _features(self) -> torch.Tensor:
        model: Any = open_model(self._folder)
        side = model.config.vision_config.image_size
        how = read_preprocessing(self._folder, side=side)
        mean, std = (torch.tensor(each)[:, None, None] for each in (how.mean, how.std))
        squares = [
            fit_image(each, side=side, fit=how.fit, mode=how.mode, shortest=how.shortest)
            for each in _PICTURES
        ]
        pixels = torch.stack([(each / 255 - mean) / std for each in squares])
        return model.get_image_features(pixel_values=pixels).pooler_output

    def _of_transformers(self) -> torch.Tensor:
        from transformers import CLIPImageProcessor, CLIPModel

        processor = CLIPImageProcessor.from_pretrained(self._folder)
        pictures = [Image.fromarray(each) for each in _PICTURES]
        pixels = processor(images=pictures, return_tensors="pt")["pixel_values"]
        model: Any = CLIPModel.from_pretrained(self._folder)
        return model.get_image_features(pixels).pooler_output
