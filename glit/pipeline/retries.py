"""Settings that held for a retry alone: kept in the work folder, told by the manifest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from glit.errors import InputError, first_line
from glit.pipeline.work import Work
from glit.stages.recipe import overridden_tables
from glit.storage.store import to_json

_FILE = "retries.json"


def note_retry(
    work: Work, settings: Sequence[str], *, stage: str | None, reason: str | None
) -> None:
    """Keep what was tried with these settings, and which tables it went into.

    Raises:
        InputError: what was noted before is damaged.
    """
    tables = overridden_tables(settings)
    told = {"settings": tables, "stage": stage, "reason": reason}
    folders = {name: work.plan.folder(name) for name in tables}
    noted, entry = _noted(work), {"told": told, "folders": folders}
    if entry not in noted:
        work.store.write(_FILE, to_json([*noted, entry]))


def retries(work: Work) -> list[dict[str, Any]]:
    """What the manifest says of retries by other settings, of those whose tables are still used.

    Raises:
        InputError: the file that keeps it is damaged.
    """
    return [
        each["told"]
        for each in _noted(work)
        if all(work.plan.folder(name) == folder for name, folder in each["folders"].items())
    ]


def _noted(work: Work) -> list[dict[str, Any]]:
    if not work.store.exists(_FILE):
        return []
    try:
        noted = json.loads(work.store.read(_FILE))
        for each in noted:
            _ = each["told"], dict(each["folders"])
    except (ValueError, TypeError, LookupError) as error:
        raise InputError(
            f"{work.store.root}/{_FILE}: damaged ({first_line(error)}); it tells the settings of "
            "earlier retries: restore it, or build anew in another folder"
        ) from error
    return noted
