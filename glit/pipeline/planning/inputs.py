"""Find the inputs of a build besides its recipe."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from glit.errors import InputError, UserError
from glit.inputs.lookup import BroughtCaptions, UserTable
from glit.inputs.published.user_regions import prepare_regions
from glit.inputs.source import Source
from glit.inputs.user_captions import kinds_of, prepare
from glit.pipeline.planning.lock import Lock
from glit.recipes.config import is_enabled
from glit.stages import flow
from glit.stages.plan import Recipe
from glit.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The images of a build, the user's tables, and the models that it is locked to."""

    source: Source
    captions: BroughtCaptions | None = None
    regions: UserTable | None = None
    lock: Lock | None = None
    """Build with these models and no others."""


def resolve_inputs(
    recipe: Recipe,
    source: Source,
    captions: str | None,
    regions: str | None,
    lock: Lock | None,
    *,
    work: Store,
) -> tuple[Recipe, Inputs]:
    """Read the user's files; the recipe with the kinds of captions in them, and all that it reads.

    Args:
        recipe: as the user wrote it.
        source: the images.
        captions: the user's file of captions.
        regions: the user's file of regions.
        lock: the models that are taken.
        work: the work folder, where tables of the files are written.

    Raises:
        UserError: the recipe has no use for one of them.
        InputError: one is missing or is not understood, or lacks a kind that the recipe names.
    """
    if captions is not None and recipe.caption.backend != "provided":
        raise UserError(
            f"--captions was given, but recipe {recipe.name!r} has caption.backend = "
            f"{recipe.caption.backend!r}; add --set caption.backend=provided"
        )
    if regions is not None and not is_enabled(recipe.propose):
        raise UserError(
            f"--regions was given, but recipe {recipe.name!r} has propose.enabled = false; leave "
            "one of the two out"
        )
    if regions is not None and "regions" not in flow(recipe.tables).given(recipe):
        raise UserError(
            f"--regions was given, but recipe {recipe.name!r} has propose.backend = "
            f"{recipe.propose.backend!r}; add --set propose.backend=provided"
        )
    inputs = read_inputs(source, captions, regions, lock, work=work)
    if inputs.captions is not None:
        recipe = _with_kinds(recipe, inputs.captions.name, kinds_of(inputs.captions))
    return recipe, inputs


def _with_kinds(recipe: Recipe, file: str, found: tuple[str, ...]) -> Recipe:
    """The recipe with the kinds of captions found in the user's file, where it names none.

    Raises:
        InputError: it names one that the file does not have.
    """
    wanted = recipe.caption.kinds
    if missing := [kind for kind in wanted if kind not in found]:
        has = f"those of the kinds {', '.join(found)}" if found else "one caption an image"
        raise InputError(
            f"{file}: caption.kinds wants captions of the kind {missing[0]!r}, the file has {has}"
        )
    caption = dataclasses.replace(recipe.caption, kinds=wanted or found)
    return dataclasses.replace(recipe, tables={**recipe.tables, "caption": caption})


def read_inputs(
    source: Source, captions: str | None, regions: str | None, lock: Lock | None, *, work: Store
) -> Inputs:
    """Read the user's files of captions and regions into tables in the work folder.

    Raises:
        InputError: one is missing, of an unknown kind, or a row is not understood.
    """
    into = {"image_root": source.root, "work": work}
    return Inputs(
        source=source,
        captions=None if captions is None else prepare(captions, **into),
        regions=None if regions is None else prepare_regions(regions, **into),
        lock=lock,
    )
