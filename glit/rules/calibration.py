"""How probable it is that a chosen pair is right: logistic regression over a rule's numbers.

p = 1 / (1 + exp(-(bias + sum_k weight_k (x_k - mean_k) / scale_k)))   (Platt 1999)

The numbers x of a chosen pair are those of :func:`evidence`. It is fitted on a dataset whose right
pairs are known (:mod:`glit.bench.pairs`), kept as a small JSON file, and named in the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from glit.errors import RecipeError
from glit.records import Region
from glit.rules.protocol import Matrix, is_detected

FORMAT = "glit-calibration-1"
EVIDENCE = ("value", "detected", "lead_over_regions", "lead_over_sentences")
PROBABILITY_DECIMALS = 4


def evidence(value: Matrix, regions: Sequence[Region]) -> Float[np.ndarray, "S K"]:
    """What speaks for each sentence's best region.

    Columns: its value; 1 for a region that a model proposed, 0 for the grid's; its lead over the
    sentence's next best region; its lead over the next best sentence of that region. Where there
    is no other, the lead is 0.
    """
    rows = np.arange(len(value))
    best = value.argmax(axis=1)
    chosen = value[rows, best].astype(np.float64)
    others = value.astype(np.float64)
    others[rows, best] = -np.inf
    columns = value.T[best].astype(np.float64)
    columns[rows, rows] = -np.inf
    return np.column_stack(
        [
            chosen,
            is_detected(regions)[best],
            _lead(chosen, others.max(axis=1)),
            _lead(chosen, columns.max(axis=1)),
        ]
    )


def _lead(chosen: np.ndarray, next_best: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(next_best), chosen - next_best, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fitted calibration; it holds for one rule over the scores of one matcher."""

    rule: Mapping[str, Any]
    """The rule and its options, as in ``[pair]``."""
    matcher: Mapping[str, str]
    """The identity of the matcher, as in the manifest."""
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weight: tuple[float, ...]
    bias: float
    fitted_on: Mapping[str, Any] = field(default_factory=dict)
    """Pairs, right ones among them, and where they are from; for people."""

    def __post_init__(self) -> None:
        numbers = np.array([*self.mean, *self.scale, *self.weight, self.bias], dtype=np.float64)
        lengths = {len(self.mean), len(self.scale), len(self.weight)}
        if lengths != {len(EVIDENCE)} or not np.isfinite(numbers).all() or min(self.scale) <= 0:
            raise RecipeError(
                f"calibration: want {len(EVIDENCE)} finite numbers of each kind, scales above 0"
            )

    def probabilities(self, value: Matrix, regions: Sequence[Region]) -> Float[np.ndarray, " S"]:
        """Of each sentence's best region, in float32 to four decimals, as they are stored."""
        found = (evidence(value, regions) - self.mean) / self.scale
        logit = found @ np.array(self.weight) + self.bias
        likely = 1 / (1 + np.exp(-np.clip(logit, -50, 50)))
        return np.round(likely, PROBABILITY_DECIMALS).astype(np.float32)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for its file and the manifest."""
        return json.loads(json.dumps({"format": FORMAT, **asdict(self)}))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, where: str) -> Calibration:
        """The calibration of plain values.

        Raises:
            RecipeError: they are not one's.
        """
        kept = dict(values)
        if kept.pop("format", None) != FORMAT:
            raise RecipeError(f"{where}: no calibration of this glit (want format {FORMAT!r})")
        try:
            for name in ("mean", "scale", "weight"):
                kept[name] = tuple(map(float, kept[name]))
            return cls(**kept)
        except (KeyError, TypeError, ValueError) as error:
            raise RecipeError(f"{where}: not a calibration ({error})") from error


def read_calibration(file: Path) -> Calibration:
    """The calibration of a file.

    Raises:
        RecipeError: there is none, or it is damaged.
    """
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecipeError(f"[pair] calibration: {file} cannot be read ({error})") from error
    if not isinstance(values, dict):
        raise RecipeError(f"{file}: not a calibration")
    return Calibration.from_dict(values, where=str(file))


def fit(
    found: Float[np.ndarray, "N K"], right: np.ndarray, *, ridge: float = 1e-4
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...], float]:
    """Logistic regression by Newton's method: mean, scale, weight, bias.

    Args:
        found: :func:`evidence` of N chosen pairs.
        right: whether each is.
        ridge: penalty on the squared weights, over standardised numbers.

    Raises:
        RecipeError: all pairs are right, or all wrong.
    """
    target = np.asarray(right, dtype=np.float64)
    if len(target) == 0 or target.min() == target.max():
        kind = (
            "no pairs" if len(target) == 0 else ("right" if target[0] else "wrong") + " ones only"
        )
        raise RecipeError(f"calibration: wants right and wrong pairs, found {kind}")
    mean, scale = found.mean(axis=0), found.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    design = np.column_stack([(found - mean) / scale, np.ones(len(found))])
    penalty = np.diag([*[2 * ridge] * found.shape[1], 0.0])
    weight = np.zeros(design.shape[1])
    for _ in range(100):
        likely = 1 / (1 + np.exp(-np.clip(design @ weight, -50, 50)))
        slope = design.T @ (likely - target) / len(target) + penalty @ weight
        curve = (design * (likely * (1 - likely))[:, None]).T @ design / len(target) + penalty
        step = np.linalg.solve(curve + 1e-12 * np.eye(len(weight)), slope)
        weight = weight - step
        if np.abs(step).max() < 1e-10:
            break
    parts = ([round(float(number), 6) for number in each] for each in (mean, scale, weight))
    mean, scale, weight = map(tuple, parts)
    return mean, scale, weight[:-1], weight[-1]
