"""Import boxes of a tool in a test."""

from __future__ import annotations

from pathlib import Path

from building import json_lines

from glit.inputs.importers import Imported, import_captions, regions_file


def taken(
    form: str, source: Path, images: Path | None = None, split: str | None = None
) -> tuple[Imported, dict[str, list[dict]]]:
    """The result of an import, and the regions by file name."""
    output = (source if source.is_dir() else source.parent) / "out.jsonl"
    found = import_captions(form, source, output, images=images, split=split)
    assert not output.exists() or found.captions
    rows: dict[str, list[dict]] = {}
    for row in json_lines(regions_file(output)):
        rows.setdefault(Path(row.pop("path")).name, []).append(row)
    regions_file(output).unlink()
    return found, rows


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
