"""Plant faults of each kind in files of each format, and count how many of them an audit finds.

python -m tools.measure.planted_faults DATASET [KIND or PLANTED or FORMAT or pairs ...]

DATASET is a clean one with regions, such as of ``glit scenes``. Printed are, by kind and format, at
rates of 1 % and 10 % of the images: recall, the share of planted images that are found; precision,
the share of found images that were planted; and images that are claimed to have other faults. A
second table (``pairs``) has what is said of wrong pairs.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import Any

from glit import open_dataset
from glit.curate.references import Wanted, open_list
from glit.dataset.reader import Dataset
from glit.inspection.findings import AuditReport, Estimate, Tally
from glit.inspection.inspect import inspect
from glit.inspection.sources import open_source
from glit.models.clip.opening import open_embedder
from glit.runtime.progress import null_progress
from tools.measure.console import ended, say
from tools.measure.planted_entries import Entry, entries_of, write_pictures
from tools.measure.planted_formats import WRITERS, write_dataset, write_odvg
from tools.measure.planted_kinds import EFFECTS, PLANTS, Plant, half_as_jpeg, plant_other_boxes

RATES = (0.01, 0.1)
MATCHER = "mini-matcher"
_PICTURES_INSIDE = ("images", "metadata", "voc", "webdataset", "hf", "yolo", "labelme")
"""Formats whose pictures lie where the format has them."""
_NAMED = ("labelme", "coco-instances")
"""Formats that are named, as ``--format`` does."""
_IN_PAIRS = ("caption-repeated", "caption-near", "caption-of-another", "name-clash")
"""Kinds of which another image is a part."""


def found_in(
    what: Path, images: Path | None, *, form: str | None = None, model: bool = False, **options: Any
) -> tuple[dict[str, set[str]], AuditReport]:
    """Names of the images at fault, by kind, and the report."""
    found: dict[str, set[str]] = defaultdict(set)
    source = open_source(str(what), form=form, images=str(images or ""), split=None)
    opened = open_embedder(MATCHER, needed_for="the tool") if model else None
    report = inspect(
        source, null_progress(), images=str(images or ""), model=opened,
        tally=Tally(listener=lambda code, name: found[code].add(name)), **options,
    )  # fmt: skip
    return found, report


def measured(
    dataset: Dataset, form: str, code: str, plant: Plant, rate: float
) -> tuple[int, int, int, int]:
    """Numbers of images: planted, found, rightly found, and with other faults."""
    rng = random.Random(f"{form} {code} {rate}")
    entries = entries_of(dataset)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "images").mkdir()
        chosen = rng.sample(range(len(entries)), max(1, round(_share(code) * rate * len(entries))))
        others = [each for number, each in enumerate(entries) if number not in chosen]
        left = list(others)
        for number in chosen:
            plant(entries[number], rng, left)
        names = {entries[number].name for number in chosen}
        if code in _IN_PAIRS:
            names |= {each.name for each in others if each not in left}
        options: dict[str, Any] = {}
        if code == "in-test-set":
            (folder / "test-set").mkdir()
            for number in chosen:
                data = half_as_jpeg(entries[number].original)
                (folder / "test-set" / f"{number}.jpg").write_bytes(data)
            wanted = Wanted(images=str(folder / "test-set"))
            options["test_set"] = open_list(wanted, null_progress())
        what, images = _written(entries, folder, dataset, form)
        found, _ = found_in(
            what, images, form=form if form in _NAMED else None,
            model=code == "caption-of-another", **options,
        )  # fmt: skip
    names = {_plain(name, entries) for name in names}
    here = {_plain(name, entries) for name in found.pop(code, set())}
    effects = EFFECTS.get(code, ())
    other = {name for kind, at_fault in found.items() for name in at_fault if kind not in effects}
    return len(names), len(here), len(names & here), len(other)


def _share(code: str) -> float:
    return 0.5 if code in ("caption-of-another", "name-clash") else 1.0


def _written(
    entries: list[Entry], folder: Path, dataset: Dataset, form: str
) -> tuple[Path, Path | None]:
    """What an audit is given: the dataset or annotations, and the folder of the pictures."""
    if form == "glit":
        return write_dataset(entries, folder, dataset), None
    for each in entries if form == "visual-genome" else ():
        each.name = f"{each.name.removesuffix('.png')}.jpg"
    if form not in ("webdataset", "hf"):
        write_pictures(entries, folder / "images")
    what = WRITERS[form](entries, folder)
    return what, None if form in _PICTURES_INSIDE else folder / "images"


def _plain(name: str, entries: list[Entry]) -> str:
    """A name without folders and suffix, which some formats change; rows of Parquet have none."""
    shard, _, member = name.rpartition("::")
    in_table = shard.endswith(".parquet")
    return PurePosixPath(entries[int(member)].name if in_table else member).stem


def estimated(dataset: Dataset, rate: float) -> Estimate:
    """What an audit says of the pairs, if those of such a share of the images are wrong."""
    rng, entries = random.Random(f"pairs {rate}"), entries_of(dataset)
    others = entries_of(dataset)
    for number in rng.sample(range(len(entries)), round(rate * len(entries))):
        plant_other_boxes(entries[number], rng, others)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "images").mkdir()
        write_pictures(entries, folder / "images")
        _, report = found_in(write_odvg(entries, folder), folder / "images", model=True)
    return report.estimates[0]


def main() -> None:
    """Print the tables."""
    if len(sys.argv) < 2:
        say("usage: python -m tools.measure.planted_faults DATASET [KIND or PLANTED ...]")
        sys.exit(2)
    dataset, wanted = open_dataset(sys.argv[1]), set(sys.argv[2:])
    print("| kind | planted | format | rate | planted | found | recall | precision | others |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for code, how, plant, forms in PLANTS:
        for form, rate in itertools.product(forms, RATES):
            if not wanted or {code, how, form} & wanted:
                planted, found, right, other = measured(dataset, form, code, plant, rate)
                precision = f"{right / found:.0%}" if found else "-"
                print(
                    f"| {code} | {how} | {form} | {rate:.0%} | {planted} | {found} | "
                    f"{right / planted:.0%} | {precision} | {other} |", flush=True,
                )  # fmt: skip
    if wanted and "pairs" not in wanted:
        return
    print("| wrong pairs planted | below the middle | interval | pairs |\n|---:|---:|---:|---:|")
    for rate in (0.0, *RATES, 0.3):
        found = estimated(dataset, rate)
        print(
            f"| {rate:.0%} | {found.share:.1%} | {found.at_least:.1%} to {found.at_most:.1%} | "
            f"{found.items} |", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    ended(main)
