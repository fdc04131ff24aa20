"""``glit sample``: twelve photographs whose captions, boxes and pairs were made by hand.

``photographs.jsonl`` has a line per photograph: its caption, where it is from, its author and
licence, and a box for every sentence that tells of a part of the picture.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glit.dataset.manifest import Manifest
from glit.errors import UserError
from glit.runtime.progress import StageProgress

HERE = Path(__file__).parent
RECIPE = "sample"
_README = """# Twelve photographs, described by hand

The captions were written, and a box drawn for every sentence that tells of a part of the picture,
one by one while looking at each photograph; no captioner, detector or matcher ran.
`images/` has the photographs, made smaller, with the boxes in `NAME.json`; `captions.jsonl` has the
captions; `dataset/` was built from both.

The captions and boxes are dedicated to the public domain (CC0-1.0). The photographs:

| photograph | author | licence | from | address |
|---|---|---|---|---|
"""


def photographs() -> list[dict[str, Any]]:
    """The lines of ``photographs.jsonl``."""
    text = (HERE / "photographs.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def write_sample(out: Path, progress: StageProgress) -> Manifest:
    """Write the photographs, their captions and boxes, and build ``out/dataset``; its manifest.

    Raises:
        UserError: the folder cannot be written to.
        MissingExtraError: there is nothing to count tokens with.
    """
    from glit.pipeline.build import BuildRequest, build
    from glit.pipeline.executors.local import LocalExecutor
    from glit.pipeline.planning.recipe import load_recipe

    images, captions, rows = out / "images", [], []
    try:
        images.mkdir(parents=True, exist_ok=True)
        for each in photographs():
            name = each["path"]
            _write(images / name, (HERE / "photographs" / name).read_bytes())
            text = json.dumps({"regions": each["regions"]}, indent=1)
            _write((images / name).with_suffix(".json"), text.encode())
            captions.append(json.dumps({"path": name, "caption": each["caption"]}))
            rows.append("| {path} | {author} | {licence} | {source} | {address} |".format(**each))
        _write(out / "captions.jsonl", ("\n".join(captions) + "\n").encode())
        _write(out / "README.md", (_README + "\n".join(rows) + "\n").encode())
    except OSError as error:
        raise UserError(f"{out}: cannot write there ({error.strerror or error})") from error
    request = BuildRequest(
        images=str(images),
        output=str(out / "dataset"),
        recipe=load_recipe(RECIPE),
        captions=str(out / "captions.jsonl"),
    )
    return build(request, LocalExecutor(), progress)


def _write(path: Path, data: bytes) -> None:
    """Write a file, unless it is there already: a build takes a new time for a changed image."""
    if not path.is_file() or path.read_bytes() != data:
        path.write_bytes(data)
