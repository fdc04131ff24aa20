"""The goldens of tests/golden: what must not move without anybody noticing.

``mini.json``          rows of a small ``mini`` dataset, without the image bytes
``mini.sha256``        of each data file that those very rows make with the scenes' images
``fingerprints.json``  of every stage of every recipe, on a machine without a GPU and on one with

python -m tools.golden            regenerate, printing what changes
"""

from __future__ import annotations

import difflib
import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "golden"
ROWS, BYTES, FINGERPRINTS = (
    FOLDER / name for name in ("mini.json", "mini.sha256", "fingerprints.json")
)
NUM_SCENES = 6
SEED = 2_000_000
ON_CPU = ["propose.device=cpu", "score.device=cpu"]
"""The rows are float32's: a GPU would choose bfloat16, which is further from them than noise."""
DECIMALS = 5
"""Of floats in the golden rows; scores, cosines and boxes have no more."""


@contextmanager
def scenes() -> Iterator[Path]:
    """The scenes of the golden dataset."""
    from glit.scenes import write_scenes

    with tempfile.TemporaryDirectory() as folder:
        write_scenes(Path(folder), num=NUM_SCENES, seed=SEED)
        yield Path(folder)


def make_rows(scenes: Path) -> list[dict[str, Any]]:
    """Rows of a build of the scenes with their own captions, without the image bytes."""
    import pyarrow.parquet as pq

    import glit

    with tempfile.TemporaryDirectory() as folder:
        glit.build(
            scenes / "images", f"{folder}/dataset", recipe="mini", settings=ON_CPU,
            captions=scenes / "captions.jsonl", executor="local", quiet=True,
        )  # fmt: skip
        rows = pq.read_table(f"{folder}/dataset/data").to_pylist()
    for row in rows:
        row.pop("image")
    return [_rounded(row) for row in rows]


def make_bytes(scenes: Path, rows: list[dict[str, Any]]) -> dict[str, str]:
    """SHA-256 of the data files that golden rows make: the writer's part, on any processor."""
    from glit.data.records import Sample
    from glit.data.schema import dataset_schema
    from glit.pipeline.planning.recipe import load_recipe
    from glit.stages import flow
    from glit.stages.pack import PackConfig, write_groups
    from glit.storage.store import Store

    store = Store(scenes / "images")
    samples = []
    for row in rows:
        sample = Sample(
            sample_id=row["sample_id"],
            source_path=row["source_path"],
            width=row["width"],
            height=row["height"],
            num_bytes=len(store.read(row["source_path"])),
        )
        for stage in flow(load_recipe("mini").tables).later_stages.values():
            sample = stage.with_row(sample, row)
        samples.append(sample)
    schema = dataset_schema(tokenizer={"name": "golden", "sha256": "", "context": 248})
    found = {}
    for store_as in ("bytes", "path"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "data.parquet"
            config = PackConfig(image_store=store_as)
            written = write_groups(samples, path, images=store, config=config, schema=schema)
            assert list(written) == [len(samples)]
            found[store_as] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def make_fingerprints() -> dict[str, dict[str, dict[str, str]]]:
    """Of every stage, by recipe and device; models are taken to be here under a fixed hash."""
    from glit.inputs.lookup import BroughtCaptions, UserTable
    from glit.inputs.source import Source
    from glit.models.weights import Resolved
    from glit.pipeline.planning.inputs import Inputs
    from glit.pipeline.planning.plan import make_plan
    from glit.pipeline.planning.recipe import load_recipe
    from glit.recipes.resources import builtin_recipes
    from glit.stages.pair import PairConfig

    def at_hand(name: str, revision: str = "main", **_: Any) -> Resolved:
        digest = hashlib.sha256(name.encode()).hexdigest()
        return Resolved(name=name, path=FOLDER, revision=revision, sha256=digest)

    found: dict[str, dict[str, dict[str, str]]] = {}
    inputs = Inputs(
        source=Source(root="images"),
        captions=BroughtCaptions(name="captions.jsonl", table="captions.parquet"),
        regions=UserTable(name="regions.jsonl", table="regions.parquet"),
    )
    for name in builtin_recipes():
        for device in ("cpu", "cuda"):
            with (
                mock.patch("glit.pipeline.planning.plan.resolve", at_hand),
                mock.patch.object(PairConfig, "check_calibration"),  # of the true mini matcher
            ):
                plan = make_plan(load_recipe(name), inputs, device=device)
            found.setdefault(name, {})[device] = dict(plan.fingerprints)
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DECIMALS)
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list) else value


def main() -> None:
    """Regenerate the files and print the differences."""
    with scenes() as folder:
        rows = make_rows(folder)
        made = {ROWS: rows, BYTES: make_bytes(folder, rows), FINGERPRINTS: make_fingerprints()}
    for path, value in made.items():
        after = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        changes = difflib.unified_diff(
            before.splitlines(), after.splitlines(), path.name, "now", n=1
        )
        print("\n".join(changes) or f"{path.name}: no change")
        path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
