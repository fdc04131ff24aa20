"""Say at the end of a build how many of its pictures forbid data mining or training."""

from __future__ import annotations

from collections.abc import Mapping

from glit.runtime.progress import StageProgress
from glit.stages.plan import Recipe
from glit.stages.rights import RightsConfig


def note_mining(progress: StageProgress, counts: Mapping[str, int], recipe: Recipe) -> None:
    """Print the line, if there is something to know.

    Args:
        progress: what prints it.
        counts: as of :func:`mining_note`.
        recipe: of the build.
    """
    if counts.keys() & {"prohibited", "unreadable"}:
        progress.note(mining_note(counts, recipe))


def mining_note(counts: Mapping[str, int], recipe: Recipe) -> str:
    """A line on the shipped pictures.

    Args:
        counts: by what their own metadata says; see :func:`glit.inputs.rights.mining_of`.
        recipe: of the build.
    """
    forbid, unreadable = counts.get("prohibited", 0), counts.get("unreadable", 0)
    said = f"{forbid:,} of {sum(counts.values()):,} pictures "
    said += f"{'forbids' if forbid == 1 else 'forbid'} data mining or training"
    if unreadable:
        said += f"; of {unreadable:,} the metadata cannot be read"
    if forbid:
        is_on = recipe.of(RightsConfig).enabled
        drop = "--set 'rights.drop=[\"mining_prohibited\"]' leaves them out"
        which = "the column rights says which" if is_on else "--set rights.enabled=true says which"
        said += f" ({which}, {drop})"
    return said
