"""The rules that chose a dataset's pairs, made of what its manifest records."""

from __future__ import annotations

from typing import Any

from glit.dataset.manifest import Manifest, RecordedRule
from glit.errors import DatasetError, MissingPluginError, RecipeError
from glit.plain import as_plain
from glit.recipes.config import build_dataclass
from glit.recipes.plugins import described
from glit.rules import RULES
from glit.rules.calibration import Calibration, identity_of_scores
from glit.rules.pairing import Pairing


def pairings_of(manifest: Manifest) -> list[Pairing]:
    """Return each rule that chose a dataset's pairs, with its options and its calibration.

    Raises:
        DatasetError: this glit does not have one.
        MissingPluginError: one is of a plugin that is not loaded.
    """
    return [_pairing(manifest, rule) for rule in manifest.all_rules]


def _pairing(manifest: Manifest, recorded: RecordedRule) -> Pairing:
    name = recorded.name
    left_out = ("rule", "calibration", "min_probability", "min_support")
    table = recorded.recipe.get("pair", {})
    options = {key: value for key, value in table.items() if key not in left_out}
    kept = recorded.calibration
    where = "manifest.json: calibration"
    calibration = Calibration.from_dict(kept, where=where) if kept else None
    if name not in RULES and (plugins := manifest.recipe.plugins):
        said = " or ".join(map(described, plugins))
        raise MissingPluginError(f"manifest.json: pairs by the rule {name!r}, of {said}")
    try:
        return Pairing(
            rule=build_dataclass(RULES[name], options, where="manifest.json: recipe: pair"),
            calibration=calibration,
            min_probability=float(table.get("min_probability", 0.0)),
            min_support=float(table.get("min_support", 0.0)),
        )
    except (KeyError, TypeError, ValueError, RecipeError) as error:
        raise DatasetError(
            f"manifest.json: pairs by the rule {name!r} with {options or 'no options'}, which this "
            f"glit does not have (it has {', '.join(RULES)})"
        ) from error


def scores_of(manifest: Manifest) -> dict[str, Any]:
    """Return the identity of the scores, which a calibration must fit to; see
    :func:`glit.rules.calibration.identity_of_scores`."""
    return identity_of_scores(as_plain(manifest.models), manifest.recipe.table("score"))
