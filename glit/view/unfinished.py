"""The page of a build that is not finished, or that shipped nothing: what was dropped and why."""

from __future__ import annotations

from collections import Counter
from typing import Any

from glit.pipeline.status import UnfinishedBuild, status
from glit.stages import all_reasons
from glit.version import __version__
from glit.view.originals import Originals
from glit.view.report import page_title

_MOST = 200
"""Images on the page."""
_SIDE, _BYTES = 320, 12 << 10


def unfinished_data(build: UnfinishedBuild, *, image_root: str = "") -> dict[str, Any]:
    """The page's data, as JSON.

    Args:
        build: one without a dataset.
        image_root: the images' folder; without it, the one that the build noted.

    Raises:
        UserError: there is no build, or it is of another version of glit.
    """
    originals = Originals.of(build.output, image_root)
    drops = build.drops().to_pylist()
    numbers = Counter(f"{row['stage']}/{row['reason']}" for row in drops)
    meanings, now = all_reasons(), status(build.output)
    return {
        "kind": "unfinished",
        "title": page_title(build.output),
        "glit": __version__,
        "dropped": len(drops),
        "stages": now["stages"],
        "command": now["command"],
        "empty": now["empty"],
        "reasons": [
            {"why": why, "number": number, "meaning": meanings.get(why.partition("/")[2], "")}
            for why, number in numbers.most_common()
        ],
        "drops": [
            {
                "path": row["source_path"],
                "why": f"{row['stage']}/{row['reason']}",
                "message": row["message"],
                "image": originals.picture(
                    row["source_path"], row["sample_id"], max_side=_SIDE, max_bytes=_BYTES
                ),
            }
            for row in drops[:_MOST]
        ],
    }
