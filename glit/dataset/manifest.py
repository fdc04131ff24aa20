"""The manifest of a dataset: typed, read and written here alone. It is written last and marks a
complete dataset."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from glit.data.schema import SCHEMA_VERSION
from glit.dataset.local_pairs import count_without_pair
from glit.errors import DatasetError, InputError, UserError, cut, first_line
from glit.models.weights import LOCAL
from glit.plain import MisfitError, as_plain, from_plain, limited, unknown_keys
from glit.recipes.config import build_dataclass
from glit.storage.store import Store, to_json
from glit.verdicts.record import AuditPlan

T = TypeVar("T")

MANIFEST = "manifest.json"
_FILE_NAME = re.compile(r"(data/)?[A-Za-z0-9][A-Za-z0-9._-]*")
"""Pattern for names of a dataset's files; none leads out of its folder."""
Tables = Mapping[str, Mapping[str, Any]]
"""Tables of a recipe as plain values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesCounts:
    """The balance of what was built first, or of an addition."""

    ingested: int
    shipped: int
    dropped: int
    duplicates: int

    @property
    def holds(self) -> bool:
        """True if ``ingested == shipped + dropped + duplicates``."""
        return self.ingested == self.shipped + self.dropped + self.duplicates

    def __str__(self) -> str:
        return (
            f"{self.ingested} images = {self.shipped} shipped + {self.dropped} dropped + "
            f"{self.duplicates} duplicates"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts(SeriesCounts):
    """The balance of a dataset, additions included."""

    drops: Mapping[str, int]
    """By ``stage/reason``."""
    without_pair: int | None = None
    """Shipped samples without any region; they give no local loss."""

    @property
    def breach(self) -> str:
        """The way the balance fails, in a line; empty where it holds."""
        if self.holds:
            return ""
        return (
            f"the balance does not hold: {self.ingested} ingested, but {self.shipped} shipped "
            f"+ {self.dropped} dropped + {self.duplicates} duplicates"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """Size, row count and SHA-256 of one Parquet file of a dataset."""

    rows: int = limited(least=0)
    bytes: int = limited(least=0)
    sha256: str
    without_pair: int | None = None
    """Samples without any region; None of a file without samples."""
    locations_removed: int | None = None
    """Images whose coordinates were taken out; None if there were none."""
    more: Mapping[str, Any] = unknown_keys()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model that worked on a dataset."""

    name: str
    revision: str
    sha256: str
    """SHA-256 of its weights."""
    licence: str
    """Empty where it is not known."""
    more: Mapping[str, str] = unknown_keys()

    @property
    def is_mini(self) -> bool:
        """True for one of glit's own models, which know the procedural scenes alone."""
        return self.name.startswith("mini-") and self.revision != LOCAL


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerEntry:
    """The tokenizer that gave the token spans."""

    name: str
    sha256: str
    context: int
    """Text window, tokens."""
    more: Mapping[str, Any] = unknown_keys()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRecipe:
    """The recipe of the build, with all keys of all enabled steps, as the manifest records it.

    Tables stay plain values: their step may be of another version, or of a plugin that is not here.
    """

    name: str
    about: str
    plugins: tuple[Mapping[str, str], ...] = ()
    """Whose parts it used; see :meth:`glit.recipes.plugins.Plugin.identity`."""
    tables: Tables = unknown_keys()

    def table(self, step: str) -> Mapping[str, Any]:
        """The table of a step; empty if it has none."""
        return self.tables.get(step, {})

    def config(self, step: str, kind: type[T]) -> T:
        """Build the configuration of a step from its recorded table.

        Raises:
            RecipeError: the table is not one of this version of glit.
        """
        return build_dataclass(kind, dict(self.table(step)), where=f"[{step}]")

    def with_table(self, step: str, table: Mapping[str, Any]) -> RecordedRecipe:
        """The recipe with another table of a step."""
        return replace(self, tables={**self.tables, step: table})

    @property
    def language(self) -> str:
        """The language of the captions, a code of ISO 639."""
        return str(self.table("split").get("language") or "en")

    @property
    def tokenizers(self) -> tuple[str, ...]:
        """Models whose tokenizer may be that of the dataset; none if the recipe names none."""
        named = self.table("split").get("tokenizer"), self.table("score").get("model")
        return tuple(filter(None, named))

    @property
    def has_regions(self) -> bool:
        """True if images were given regions; false for a dataset of captions alone."""
        return self.table("propose").get("enabled", True)

    @property
    def holds_images(self) -> bool:
        """True if the data files hold the images; false if they hold only their paths."""
        return self.table("pack").get("image_store", "bytes") != "path"

    @property
    def is_grounded(self) -> bool:
        """True if a detector, or the user's files, said where phrases are."""
        return "ground" in self.tables

    @property
    def pairs_from_files(self) -> bool:
        """True if no matcher chose the pairs: the user's files name them."""
        return self.table("score").get("backend") in ("file", "provided")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """Settings that held for ``glit retry --set`` alone."""

    settings: Tables = field(default_factory=dict)
    more: Mapping[str, Any] = unknown_keys()
    """``stage`` and ``reason`` of the drops that were tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDataset:
    """A dataset that rows were taken from, and what was done to them."""

    name: str
    """Name of its folder."""
    manifest_sha256: str
    rows: int
    more: Mapping[str, Any] = unknown_keys()
    """After ``glit select`` the options and the seed, and what it was selected ``before``. After
    ``glit pairs apply`` the files, the number of corrected ``samples``, and how much of each kind.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedDataset(SourceDataset):
    """A dataset that was merged; ``more`` are further keys of its manifest."""

    recipe: RecordedRecipe
    merged: tuple[MergedDataset, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRule:
    """A rule that chose pairs, as tables of the recipe, and its calibration."""

    recipe: Tables
    """The table ``pair``."""
    calibration: Mapping[str, Any] | None
    more: Mapping[str, Any] = unknown_keys()

    @property
    def name(self) -> str:
        """The rule's name."""
        return str(self.recipe.get("pair", {}).get("rule"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A claim on the share of wrong pairs, sentences, phrases or boxes, proved by verdicts.

    It is of the data files that the manifest names; :func:`glit.dataset.certificate.faults`
    computes it again from the verdicts.
    """

    plan: AuditPlan
    """The claim, and how items were drawn."""
    part: int = limited(least=0)
    """Which of the plan's parts is proved, counted from 0."""
    items: int
    """The proved claim is of so many."""
    items_sha256: str
    """Their identity, with their probabilities."""
    min_probability: float | None = None
    """They are those of at least this probability; None if they are all."""
    judged: int
    """Verdicts on these items."""
    wrong: int
    proved_after: int
    """Number of verdicts on these items that proved the claim."""
    estimate: float
    """Estimate of the share of wrong items."""
    at_most: float
    """The share is at most this, with the confidence of the plan."""
    at_least: float
    plain_at_most: float
    """See :class:`glit.verdicts.claims.Bounds`."""
    judges: tuple[str, ...]
    """The names that those who judged gave themselves."""
    judged_by_two: int = 0
    kappa: float | None = None
    """Cohen's kappa of two people on the same items."""
    verdicts: str
    """The dataset's file of verdicts."""
    opinions: str = ""
    """Its file of a model's opinions, if they narrowed the bounds."""
    more: Mapping[str, Any] = unknown_keys()

    @property
    def most_predicted(self) -> float:
        """The greatest chance to be wrong that probabilities give to one of the items."""
        return self.plan.parts[self.part].most_predicted

    @property
    def claim(self) -> str:
        """The claim in a sentence."""
        low, plan = self.min_probability, self.plan.claim
        which = "" if low is None else f" of probability {low:.3g} or more"
        return (
            f"at least {100 * (1 - plan.error):.4g} % of {self.items:,} {plan.of}{which} are "
            f"right, with {100 * plan.confidence:.4g} % confidence, by {self.judged} verdicts"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The manifest of a dataset; docs/data-format.md says what each key means.

    It contains no timestamp and no path of the machine. Keys of later versions are kept.
    """

    schema_version: int
    glit_version: str
    recipe: RecordedRecipe
    fingerprints: Mapping[str, str]
    models: Mapping[str, ModelEntry]
    logit_scale: float | None = limited(None, above=0)
    precision: Mapping[str, str] = field(default_factory=dict)
    tokenizer: TokenizerEntry
    calibration: Mapping[str, Any] | None = None
    prompt: str = ""
    further_prompts: Mapping[str, str] = field(default_factory=dict)
    counts: Counts
    files: Mapping[str, FileEntry]
    packages: Mapping[str, str] = field(default_factory=dict)
    packages_before: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    additions: tuple[SeriesCounts, ...] = ()
    retries: tuple[RetrySettings, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Columns beside the standard ones, as features of the ``datasets`` library."""
    selection: SourceDataset | None = None
    corrections: tuple[SourceDataset, ...] = ()
    merged: tuple[MergedDataset, ...] = ()
    rules: tuple[RecordedRule, ...] = ()
    """After a merge of several rules; else the recipe's is the only one."""
    certificates: tuple[Certificate, ...] = ()
    """Proved claims on the dataset's pairs, sentences, phrases or boxes."""
    more: Mapping[str, Any] = unknown_keys()

    def __post_init__(self) -> None:
        for name in self.files:
            if not _FILE_NAME.fullmatch(name):
                raise MisfitError("is no name of a dataset's file", ("files", name))

    @property
    def data_files(self) -> dict[str, FileEntry]:
        """The files that hold samples, by path, sorted."""
        return {n: each for n, each in sorted(self.files.items()) if n.startswith("data/")}

    @property
    def num_series(self) -> int:
        """The number of series: the first build and every addition."""
        return 1 + len(self.additions)

    @property
    def all_rules(self) -> tuple[RecordedRule, ...]:
        """Each rule that chose pairs. A merged dataset may have several, one of captions alone has
        none."""
        if not self.recipe.has_regions:
            return ()
        own = {"pair": self.recipe.table("pair")}
        return self.rules or (RecordedRule(recipe=own, calibration=self.calibration),)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as in the file."""
        always = {"precision": {}, "calibration": None, "prompt": ""}
        return {"format": "glit", **always, **as_plain(self)}

    def as_bytes(self) -> bytes:
        """The content of the file.

        Raises:
            DatasetError: the balance does not hold.
        """
        if self.counts.breach:
            raise DatasetError(self.counts.breach)
        return to_json(self.as_dict())


Recorded = Manifest | MergedDataset


def read_manifest(store: Store) -> Manifest:
    """The manifest of a finished dataset.

    Raises:
        UserError: there is no dataset, or it is not finished.
        DatasetError: the manifest is not valid JSON, of another format, or damaged.
    """
    if not store.exists(MANIFEST):
        if store.exists("work"):
            raise UserError(
                f"{store.root}: the build is not finished; run glit build again to go on "
                "(glit status shows how far it is)"
            )
        raise UserError(f"{store.root}: no dataset here (no {MANIFEST})")
    where = f"{store.root}/{MANIFEST}"
    try:
        found = json.loads(
            store.read(MANIFEST), parse_constant=_finite, parse_float=_finite,
            object_pairs_hook=_without_repeats,
        )  # fmt: skip
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{where}: not valid JSON ({error})") from error
    except OSError as error:
        raise DatasetError(f"{where}: cannot be read ({first_line(error)})") from error
    if not isinstance(found, dict):
        raise DatasetError(f"{where}: no manifest of glit")
    if found.pop("format", None) != "glit" or found.get("schema_version") != SCHEMA_VERSION:
        raise DatasetError(
            f"{where}: schema version {found.get('schema_version')!r}, "
            f"this glit reads {SCHEMA_VERSION}"
        )
    try:
        manifest = from_plain(Manifest, found)
        _check_certificates(manifest)
    except (MisfitError, RecursionError) as error:
        raise DatasetError(f"{where}: {error}; build the dataset again") from error
    return manifest


def _check_certificates(manifest: Manifest) -> None:
    for each in manifest.certificates:
        for name in filter(None, (each.verdicts, each.opinions)):
            if name not in manifest.files:
                raise MisfitError(f"{cut(name)!r} is none of the files", ("certificates",))
        if each.part >= len(each.plan.parts):
            raise MisfitError("the plan has no such part", ("certificates", "part"))


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; Python's parser would take the last of two values of one key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, number in Counter(k for k, _ in pairs).items() if number > 1)
        raise ValueError(f"the key {cut(twice)!r} stands twice")
    return found


def _finite(text: str) -> float:
    """A number of JSON; Python's parser would let NaN and infinity through."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value


def manifest_before(store: Store) -> Manifest | None:
    """Read the manifest of an existing dataset; None if there is none or it is unusable."""
    try:
        return read_manifest(store) if store.exists(MANIFEST) else None
    except DatasetError:
        return None


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


def may_lack_regions(of: Recorded) -> bool:
    """Return whether rows without regions belong there: of captions alone, merged with others or
    not."""
    return not of.recipe.has_regions or any(map(may_lack_regions, of.merged))


def some_from_files(of: Recorded) -> bool:
    """Return whether files named some of the pairs, those of a merged part included."""
    return any(map(some_from_files, of.merged)) if of.merged else of.recipe.pairs_from_files


def require_regions(manifest: Manifest, path: str, *, wanted_by: str) -> None:
    """Raise where a dataset has captions alone.

    Args:
        manifest: of the dataset.
        path: of the dataset, for the message.
        wanted_by: what needs regions, with its verb: ``glit pair wants``.

    Raises:
        InputError: the dataset was built with ``propose.enabled = false``.
    """
    if not manifest.recipe.has_regions:
        raise InputError(
            f"{path}: a dataset of captions alone, and {wanted_by} regions and pairs; build it "
            "with propose.enabled = true"
        )


def describe_data_file(path: Path, rows: int) -> FileEntry:
    """The manifest's entry for a data file."""
    return replace(describe_file(path, rows), without_pair=count_without_pair(path))


def sum_without_pair(files: Mapping[str, FileEntry]) -> int:
    """Return the sum of ``without_pair`` over all data files described."""
    return sum(each.without_pair or 0 for each in files.values())


def describe_file(path: Path, rows: int) -> FileEntry:
    """The manifest's entry for a file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return FileEntry(rows=rows, bytes=path.stat().st_size, sha256=digest)
