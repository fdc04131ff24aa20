"""The golden dataset of the ``mini`` recipe: made here, compared by tests/golden.

python -m tools.golden            regenerate, printing what changes
"""

from __future__ import annotations

import difflib
import json
import tempfile
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "mini.json"
NUM_SCENES = 6
SEED = 2_000_000


def make() -> list[dict[str, Any]]:
    """Rows of a small dataset without the image bytes, floats rounded for reading."""
    import pyarrow.parquet as pq
    from rich.console import Console

    from glit.build import BuildRequest, build
    from glit.executors.local import LocalExecutor
    from glit.progress import StageProgress
    from glit.recipe import load_recipe
    from glit.scenes import write_scenes

    with tempfile.TemporaryDirectory() as folder:
        scenes = Path(folder) / "scenes"
        write_scenes(scenes, num=NUM_SCENES, seed=SEED)
        request = BuildRequest(
            images=str(scenes / "images"),
            output=f"{folder}/dataset",
            recipe=load_recipe("mini", overrides=["caption.backend=provided"]),
            captions=str(scenes / "captions.jsonl"),
        )
        build(request, LocalExecutor(), StageProgress(Console(quiet=True), quiet=True))
        rows = pq.read_table(f"{folder}/dataset/data").to_pylist()
    for row in rows:
        row.pop("image")
    return [_rounded(row) for row in rows]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list) else value


def main() -> None:
    """Regenerate the file and print the difference."""
    after = json.dumps(make(), indent=1, ensure_ascii=False) + "\n"
    before = GOLDEN.read_text(encoding="utf-8") if GOLDEN.is_file() else ""
    changes = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", n=1)
    print("\n".join(changes) or "no change")
    GOLDEN.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
