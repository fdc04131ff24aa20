"""List the models that are here, and the commands that download the others."""

from __future__ import annotations

import os
from dataclasses import dataclass

import httpx

from glit.doctor.finding import Finding
from glit.models.weights import look_up
from glit.runtime.progress import size
from glit.stages import flow
from glit.stages.plan import Recipe

_ANSWER_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model that one or several recipes use."""

    name: str
    recipes: tuple[str, ...]
    here: bool
    num_bytes: int
    """Size of its weights in bytes: as they lie here, else roughly as published; 0 where that is
    not known."""
    fetch: str
    """The command that gets it, as a build would by itself; empty where none is known or needed."""


def models(recipes: list[Recipe]) -> list[Model]:
    """List every model of these recipes; downloads nothing."""
    users: dict[tuple[str, str], list[str]] = {}
    for recipe in recipes:
        for asked in dict.fromkeys(flow(recipe.tables).models(recipe).values()):
            users.setdefault(asked, []).append(recipe.name)
    return [model_of(*asked, recipes=tuple(names)) for asked, names in sorted(users.items())]


def model_of(name: str, revision: str, *, recipes: tuple[str, ...]) -> Model:
    """A model by its name and revision; downloads nothing."""
    found = look_up(name, revision)
    return Model(
        name=name,
        recipes=recipes,
        here=found.path is not None,
        num_bytes=found.num_bytes,
        fetch="" if found.path is not None else found.fetch,
    )


def check_models(found: list[Model], recipe: str, *, hub_answers: bool) -> Finding:
    """Check whether a recipe's models are here or can be downloaded."""
    wanted = [model for model in found if recipe in model.recipes]
    missing = [model for model in wanted if not model.here]
    if not missing:
        names = ", ".join(model.name for model in wanted) or "none"
        return Finding(about="models", state="ok", found=f"{names}: here")
    names = ", ".join(model.name for model in missing)
    if hub_answers and all(model.fetch for model in missing):
        weight = sum(model.num_bytes for model in missing)
        known = f" (about {size(weight)})" if all(model.num_bytes for model in missing) else ""
        return Finding(
            about="models",
            state="note",
            found=f"not here: {names}",
            todo=f"the build downloads them first{known}",
        )
    commands = [model.fetch for model in missing if model.fetch]
    return Finding(
        about="models",
        state="fails",
        found=f"not here: {names}",
        todo="on a connected machine: " + " && ".join(commands) if commands else "check the names",
    )


def hub() -> tuple[Finding, bool]:
    """Check whether the model hub answers, with one small request, unless offline mode is set."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on"):
            return Finding(about="hub", state="ok", found=f"offline, as {name} says"), False
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    try:
        answer = httpx.head(address, timeout=_ANSWER_S, follow_redirects=True)
        answers = answer.status_code < 500
        found = f"{address} answers" if answers else f"{address}: status {answer.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        answers, found = False, f"{address} does not answer ({type(error).__name__})"
    return Finding(
        about="hub",
        state="ok" if answers else "note",
        found=found,
        todo="" if answers else "set HF_HUB_OFFLINE=1, or each model is waited for",
    ), answers
