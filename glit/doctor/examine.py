"""Run all checks of ``glit doctor``, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from glit.doctor.estimate import Pace, pace
from glit.doctor.finding import Finding
from glit.doctor.inputs import BuildImages, disk, look_at_images
from glit.doctor.machine import machine
from glit.doctor.models import Model, check_models, hub, models
from glit.doctor.packages import packages
from glit.errors import InputError
from glit.models.device import best_device
from glit.models.weights import is_mini
from glit.pipeline.planning.recipe import known_tables, load_recipe, read_tables
from glit.recipes.resources import builtin_recipes
from glit.stages import all_steps, flow
from glit.stages.plan import Recipe


@dataclass(slots=True, kw_only=True)
class Report:
    """The results of all checks."""

    recipe: str
    """The one that decides whether a build would work."""
    findings: list[Finding] = field(default_factory=list)
    models: list[Model] = field(default_factory=list)
    paces: list[Pace] = field(default_factory=list)
    num_images: int = 0

    @property
    def fails(self) -> bool:
        """True if a build would fail."""
        return any(finding.state == "fails" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for ``--json``."""
        paces = [{**asdict(p), "hours": p.hours(self.num_images)} for p in self.paces]
        return {
            "recipe": self.recipe,
            "would_work": not self.fails,
            "findings": [asdict(finding) for finding in self.findings],
            "models": [asdict(model) for model in self.models],
            "images": self.num_images,
            "paces": paces,
        }


def examine(
    recipe: str,
    *,
    settings: Sequence[str] = (),
    images: str | None = None,
    output: str = ".",
    all_recipes: bool = True,
    tell: Callable[[str], None] = lambda text: None,
) -> Report:
    """Check machine, packages, models, images and disk, and estimate times.

    Args:
        recipe: the recipe of the build that is meant.
        settings: of ``--set``, for that recipe.
        images: what the build would read; None leaves out what needs images.
        output: where the dataset would lie.
        all_recipes: time the other built-in recipes too.
        tell: told what it is at.

    Raises:
        RecipeError: no such recipe, or a setting that it refuses.
    """
    chosen = load_recipe(recipe, overrides=list(settings))
    report = Report(recipe=chosen.name)
    report.findings += [*machine(), *packages(chosen)]
    others = {name: load_recipe(name) for name in build_recipes() if name != chosen.name}
    tell("looking for models")
    report.models = models([chosen, *others.values()])
    said, answers = hub()
    report.findings += [said, check_models(report.models, chosen.name, hub_answers=answers)]
    seen: BuildImages | None = None
    if images is not None:
        tell("looking at the images")
        try:
            seen, found = look_at_images(images, chosen)
            report.findings += [*found, *_only_scenes(seen, report.models, chosen)]
            report.num_images = seen.number
        except InputError as error:
            report.findings.append(Finding(about="images", state="fails", found=str(error)))
    report.findings += disk(seen, chosen, output)
    if seen is not None and seen.decoded:
        _time(report, seen, chosen, recipe, list(settings), tell)
        for name, other in others.items() if all_recipes else ():
            _time(report, seen, other, name, [], tell)
    return report


def _only_scenes(seen: BuildImages, found: list[Model], recipe: Recipe) -> list[Finding]:
    """A build of photographs with the mini models runs, and is worth nothing."""
    wanted = flow(recipe.tables).models(recipe)
    asked = {name for role, (name, _) in wanted.items() if role != "tokenizer"}
    mini = [each.name for each in found if each.name in asked and is_mini(each.name)]
    if not mini or not seen.decoded:
        return []
    wrong = seen.scenes < len(seen.decoded) / 2
    return [
        Finding(
            about="models",
            state="fails" if wrong else "note",
            found=f"{', '.join(mini)}: trained on glit's procedural scenes alone"
            + (f"; {seen.scenes} of {len(seen.decoded)} images look like these" if wrong else ""),
            todo="for photographs choose -r laptop or -r flism",
        )
    ]


def _time(
    report: Report, seen: BuildImages, recipe: Recipe, name: str, settings: list[str],
    tell: Callable[[str], None],
) -> None:  # fmt: skip
    absent = [m.name for m in report.models if recipe.name in m.recipes and not m.here]
    wanting = any(finding.state == "fails" for finding in packages(recipe))
    if absent or wanting:
        why = f"not here: {', '.join(absent)}" if absent else "an extra is not installed"
        report.paces.append(
            Pace(recipe=recipe.name, seconds=None, loading_s=0, workers=1, why_not=why)
        )
        return
    tell(f"building a few images with {recipe.name}")
    found = pace(seen, recipe, name, settings, device=best_device())
    report.paces.append(found)
    if recipe.name == report.recipe and found.seconds is None and "wants NAME" not in found.why_not:
        report.findings.append(
            Finding(about="trial", state="fails", found=f"a build of a few images: {found.why_not}")
        )


def build_recipes() -> list[str]:
    """The built-in recipes that configure a build, not only training."""
    steps = {step.name for step in all_steps()}
    assert steps < set(known_tables())
    return [name for name in builtin_recipes() if steps & set(read_tables(name))]
