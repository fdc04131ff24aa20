"""Read and write the manifest, which is written last and marks a complete dataset."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from glit.data.schema import READABLE_VERSIONS, SCHEMA_VERSION, Columns, hf_feature
from glit.dataset.local_pairs import count_without_pair
from glit.errors import (
    DatasetError,
    InputError,
    MissingPluginError,
    RecipeError,
    UserError,
    first_line,
)
from glit.recipes.config import build_dataclass
from glit.recipes.plugins import described
from glit.rules import RULES
from glit.rules.argmax import Argmax
from glit.rules.calibration import Calibration
from glit.rules.lism import Lism
from glit.rules.pairing import Pairing
from glit.storage.store import Store
from glit.version import __version__

MANIFEST = "manifest.json"
_KEYS = {
    "glit_version": str, "recipe": dict, "fingerprints": dict, "models": dict, "tokenizer": dict,
    "counts": dict, "files": dict,
}  # fmt: skip
"""Without these a dataset can neither be read nor checked."""
_FILE_NAME = re.compile(r"(data/)?[A-Za-z0-9][A-Za-z0-9._-]*")
"""Of a dataset's files; none leads out of its folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The balance: ``ingested == shipped + dropped + duplicates``."""

    ingested: int
    shipped: int
    dropped: int
    duplicates: int
    drops: dict[str, int]
    """By ``stage/reason``."""
    without_pair: int = 0
    """Shipped samples without any region; they give no local loss."""

    def __post_init__(self) -> None:
        if self.ingested != self.shipped + self.dropped + self.duplicates:
            raise DatasetError(
                f"the balance does not hold: {self.ingested} ingested, but {self.shipped} shipped "
                f"+ {self.dropped} dropped + {self.duplicates} duplicates"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesCounts:
    """The balance of what was built first, or of an addition."""

    ingested: int
    shipped: int
    dropped: int
    duplicates: int


def make_manifest(
    *,
    recipe: dict[str, Any],
    fingerprints: dict[str, str],
    models: dict[str, dict[str, str]],
    precision: dict[str, str],
    tokenizer: dict[str, Any],
    counts: Counts,
    files: dict[str, dict[str, Any]],
    packages: dict[str, str],
    packages_before: dict[str, list[str]] | None = None,
    calibration: dict[str, Any] | None = None,
    prompt: str = "",
    further_prompts: Mapping[str, str] | None = None,
    additions: Sequence[SeriesCounts] = (),
    retries: Sequence[dict[str, Any]] = (),
    columns: Columns = (),
    logit_scale: float | None = None,
) -> dict[str, Any]:
    """Make the manifest from a build; it contains no timestamp and no path of the machine."""
    return {
        "format": "glit",
        "schema_version": SCHEMA_VERSION,
        "glit_version": __version__,
        "recipe": recipe,
        "fingerprints": fingerprints,
        "models": models,
        **({} if logit_scale is None else {"logit_scale": logit_scale}),
        "precision": precision,
        "tokenizer": tokenizer,
        "calibration": calibration,
        "prompt": prompt,
        **({"further_prompts": dict(further_prompts)} if further_prompts else {}),
        "counts": asdict(counts),
        "files": files,
        "packages": packages,
        **({"packages_before": packages_before} if packages_before else {}),
        **({"additions": [asdict(each) for each in additions]} if additions else {}),
        **({"retries": list(retries)} if retries else {}),
        **({"columns": {name: hf_feature(kind) for name, kind in columns}} if columns else {}),
    }


def installed_packages(names: Iterable[str]) -> dict[str, str]:
    """Versions of those packages that are installed."""
    found = {name: _installed(name) for name in names}
    return {name: version for name, version in found.items() if version is not None}


@cache
def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def read_manifest(store: Store) -> dict[str, Any]:
    """The manifest of a finished dataset.

    Raises:
        UserError: there is no dataset, or it is not finished.
        DatasetError: the manifest is not valid JSON or of another format.
    """
    if not store.exists(MANIFEST):
        if store.exists("work"):
            raise UserError(
                f"{store.root}: the build is not finished; run glit build again to go on "
                "(glit status shows how far it is)"
            )
        raise UserError(f"{store.root}: no dataset here (no {MANIFEST})")
    try:
        manifest = json.loads(store.read(MANIFEST), parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{store.root}/{MANIFEST}: not valid JSON ({error})") from error
    except OSError as error:
        raise DatasetError(
            f"{store.root}/{MANIFEST}: cannot be read ({first_line(error)})"
        ) from error
    if not isinstance(manifest, dict):
        raise DatasetError(f"{store.root}/{MANIFEST}: no manifest of glit")
    if manifest.get("format") != "glit" or manifest.get("schema_version") not in READABLE_VERSIONS:
        raise DatasetError(
            f"{store.root}/{MANIFEST}: schema version {manifest.get('schema_version')!r}, "
            f"this glit reads {' and '.join(map(str, READABLE_VERSIONS))}"
        )
    for key, kind in _KEYS.items():
        if not isinstance(manifest.get(key), kind):
            raise DatasetError(
                f"{store.root}/{MANIFEST}: {key!r} is missing or damaged; build the dataset again"
            )
    if key := _damaged_part(manifest):
        raise DatasetError(f"{store.root}/{MANIFEST}: {key} is damaged; build the dataset again")
    return manifest


def _finite(text: str) -> float:
    """A number of JSON; Python's parser would let NaN and infinity through."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value


def manifest_before(store: Store) -> dict[str, Any] | None:
    """Read the manifest of an existing dataset; None if there is none or it is unusable."""
    try:
        return read_manifest(store) if store.exists(MANIFEST) else None
    except DatasetError:
        return None


def _damaged_part(manifest: dict[str, Any]) -> str:
    """A key whose value does not have its shape; empty where all have."""
    counts = dict(manifest["counts"])
    drops = counts.pop("drops", None)
    known = {field.name for field in fields(Counts)} - {"drops"}
    missing = known - counts.keys() - {"without_pair"}  # which version 1 did not count
    if missing or counts.keys() - known or not _all_of(counts, int) or not _all_of(drops, int):
        return "'counts'"
    for name, found in manifest["files"].items():
        if not _FILE_NAME.fullmatch(name):
            return f"'files': {name!r}"
        numbers = isinstance(found, dict) and [found.get(key) for key in ("rows", "bytes")]
        if not numbers or not all(type(number) is int and number >= 0 for number in numbers):
            return f"'files': {name!r}"
        if not isinstance(found.get("sha256"), str):
            return f"'files': {name!r}"
    recipe = {k: v for k, v in manifest["recipe"].items() if k not in ("name", "about", "plugins")}
    for key, parts, kind in (
        ("recipe", recipe, dict),
        ("models", manifest["models"], dict),
        ("fingerprints", manifest["fingerprints"], str),
        ("packages", manifest.get("packages", {}), str),
        ("precision", manifest.get("precision", {}), str),
    ):
        if not _all_of(parts, kind):
            return f"'{key}'"
    plugins = manifest["recipe"].get("plugins", [])
    if not isinstance(plugins, list) or not all(_all_of(each, str) for each in plugins):
        return "'recipe'"
    if not all(_all_of(model, str) for model in manifest["models"].values()):
        return "'models'"
    named = [manifest["recipe"].get("name"), manifest["recipe"].get("about", "")]
    if not all(isinstance(text, str) for text in [*named, manifest.get("prompt", "")]):
        return "'recipe'"
    if not isinstance(manifest.get("calibration"), dict | None):
        return "'calibration'"
    additions = manifest.get("additions", [])
    wanted = {field.name for field in fields(SeriesCounts)}
    if type(additions) is not list or any(
        not _all_of(each, int) or each.keys() != wanted for each in additions
    ):
        return "'additions'"
    if not isinstance(manifest.get("columns", {}), dict):
        return "'columns'"
    retries = manifest.get("retries", [])
    if not isinstance(retries, list) or not all(
        isinstance(each, dict) and _all_of(each.get("settings", {}), dict) for each in retries
    ):
        return "'retries'"
    if key := _damaged_origin(manifest):
        return f"'{key}'"
    tokenizer = manifest["tokenizer"]
    if type(tokenizer.get("context")) is not int or not _all_of(
        {key: tokenizer.get(key) for key in ("name", "sha256")}, str
    ):
        return "'tokenizer'"
    return ""


def _damaged_origin(manifest: dict[str, Any]) -> str:
    """A key on the datasets that rows were taken from whose value does not have its shape."""
    for key in ("merged", "rules"):
        several = manifest.get(key, [{"recipe": {}}])
        if not (isinstance(several, list) and several) or not all(
            isinstance(each, dict)
            and isinstance(each.get("recipe"), dict)
            and isinstance(each["recipe"].get("pair", {}), dict)
            and isinstance(each.get("calibration"), dict | None)
            for each in several
        ):
            return key
    corrections = manifest.get("corrections", [])
    if not isinstance(corrections, list) or not all(isinstance(each, dict) for each in corrections):
        return "corrections"
    return "" if isinstance(manifest.get("selection", {}), dict) else "selection"


def _all_of(values: Any, kind: type) -> bool:
    return isinstance(values, dict) and all(type(value) is kind for value in values.values())


def num_series(manifest: dict[str, Any]) -> int:
    """The number of series of a dataset: the first build and every addition."""
    return 1 + len(manifest.get("additions", ()))


def has_regions(manifest: Mapping[str, Any]) -> bool:
    """Whether images were given regions; false for a dataset of captions alone."""
    return manifest["recipe"].get("propose", {}).get("enabled", True)


def pairs_from_files(recipe: Mapping[str, Any]) -> bool:
    """Whether no matcher chose the pairs: the user's files name them."""
    return recipe.get("score", {}).get("backend") in ("file", "provided")


def may_lack_regions(manifest: Mapping[str, Any]) -> bool:
    """Whether rows without regions belong there: of captions alone, merged with others or not."""
    parts = manifest.get("merged", ())
    return not has_regions(manifest) or any(may_lack_regions(part) for part in parts)


def require_regions(manifest: Mapping[str, Any], path: str, *, wanted_by: str) -> None:
    """Raise where a dataset has captions alone.

    Args:
        manifest: of the dataset.
        path: of the dataset, for the message.
        wanted_by: what needs regions, with its verb: ``glit pair wants``.

    Raises:
        InputError: the dataset was built with ``propose.enabled = false``.
    """
    if not has_regions(manifest):
        raise InputError(
            f"{path}: a dataset of captions alone, and {wanted_by} regions and pairs; build it "
            "with propose.enabled = true"
        )


def pairing_of(manifest: dict[str, Any]) -> Pairing:
    """The rule with its options and the calibration that chose a dataset's pairs.

    Raises:
        DatasetError: this glit does not have it.
        MissingPluginError: it is of a plugin that is not loaded.
    """
    if manifest["schema_version"] == 1:
        old = Lism() if manifest["recipe"].get("match", {}).get("global_competes") else Argmax()
        return Pairing(rule=old)
    options = dict(manifest["recipe"].get("pair", {}))
    name = options.pop("rule", None)
    options.pop("calibration", None)
    limits = {name: options.pop(name, 0.0) for name in ("min_probability", "min_support")}
    kept = manifest.get("calibration")
    calibration = kept and Calibration.from_dict(kept, where="manifest.json: calibration")
    if name not in RULES and (plugins := manifest["recipe"].get("plugins")):
        told = " or ".join(map(described, plugins))
        raise MissingPluginError(f"manifest.json: pairs by the rule {name!r}, of {told}")
    try:
        rule = build_dataclass(RULES[name], options, where="manifest.json: recipe: pair")
        return Pairing(
            rule=rule,
            calibration=calibration,
            **{key: float(limit) for key, limit in limits.items()},
        )
    except (KeyError, TypeError, ValueError, RecipeError) as error:
        raise DatasetError(
            f"manifest.json: pairs by the rule {name!r} with {options or 'no options'}, which this "
            f"glit does not have (it has {', '.join(RULES)})"
        ) from error


def pairings_of(manifest: dict[str, Any]) -> list[Pairing]:
    """:func:`pairing_of` for each rule that chose pairs. A merged dataset may have several, a
    dataset of captions alone has none.

    Raises:
        DatasetError: this glit does not have one.
    """
    if not has_regions(manifest):
        return []
    return [pairing_of({**manifest, **rule}) for rule in manifest.get("rules", [{}])]


def describe_data_file(path: Path, rows: int) -> dict[str, Any]:
    """The manifest's entry for a data file."""
    return {**describe_file(path, rows), "without_pair": count_without_pair(path)}


def sum_without_pair(files: dict[str, dict[str, Any]]) -> int:
    """Of all data files described."""
    return sum(described.get("without_pair", 0) for described in files.values())


def describe_file(path: Path, rows: int) -> dict[str, Any]:
    """The manifest's entry for a file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"rows": rows, "bytes": path.stat().st_size, "sha256": digest}
