"""Logistic regression over named evidence (Platt 1999), small enough for a JSON file.

p = 1 / (1 + exp(-(bias + sum_k weight_k (x_k - mean_k) / scale_k)))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from glit.errors import RecipeError
from glit.rules.evidence import Evidence

PROBABILITY_DECIMALS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Logistic:
    """A fitted regression."""

    evidence: tuple[str, ...]
    """Names of the K numbers x, in the order of the others."""
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weight: tuple[float, ...]
    bias: float

    def __post_init__(self) -> None:
        numbers = np.array([*self.mean, *self.scale, *self.weight, self.bias], dtype=np.float64)
        lengths = {len(self.mean), len(self.scale), len(self.weight)}
        if (
            lengths != {len(self.evidence)}
            or not self.evidence
            or not np.isfinite(numbers).all()
            or min(self.scale) <= 0
        ):
            raise RecipeError(
                "calibration: wants a finite mean, scale above 0 and weight for each evidence"
            )

    def __call__(self, found: Evidence) -> Float[np.ndarray, " S"]:
        """Probabilities in float32 to four decimals, as they are stored; NaN where evidence is.

        Raises:
            RecipeError: evidence is missing altogether.
        """
        missing = [name for name in self.evidence if name not in found]
        if missing:
            raise RecipeError(f"calibration: the scores hold no {', '.join(missing)}")
        x = np.column_stack([found[name] for name in self.evidence])
        logit = (x - self.mean) / self.scale @ np.array(self.weight) + self.bias
        likely = 1 / (1 + np.exp(-np.clip(logit, -50, 50)))
        return np.round(likely, PROBABILITY_DECIMALS).astype(np.float32)


def fit(
    evidence: Sequence[str],
    found: Float[np.ndarray, "N K"],
    right: np.ndarray,
    *,
    of: str = "pairs",
    ridge: float = 1e-4,
) -> Logistic:
    """Logistic regression by Newton's method.

    Args:
        evidence: names of the K numbers.
        found: of N cases.
        right: whether each is.
        of: what the cases are, for the message.
        ridge: penalty on the squared weights, over standardised numbers.

    Raises:
        RecipeError: all cases are right, or all wrong, or a number is not finite.
    """
    target = np.asarray(right, dtype=np.float64)
    if len(target) == 0 or target.min() == target.max():
        kind = (
            f"no {of}" if len(target) == 0 else ("right" if target[0] else "wrong") + " ones only"
        )
        raise RecipeError(f"calibration: wants right and wrong {of}, found {kind}")
    if not np.isfinite(found).all():
        raise RecipeError(f"calibration: evidence of the {of} is missing or not finite")
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
    parts = (tuple(round(float(x), 6) for x in each) for each in (mean, scale, weight))
    centre, spread, weights = parts
    return Logistic(
        evidence=tuple(evidence), mean=centre, scale=spread, weight=weights[:-1], bias=weights[-1]
    )
