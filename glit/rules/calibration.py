"""Compute the probability that a pair is correct and that its sentence is true.

Both are fitted on a dataset whose truth is known (drawn scenes) or was told by a person
(``glit pairs``), kept as one small JSON file, and named in the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from glit.data.records import Region, Scores, Sentence
from glit.errors import RecipeError, closest
from glit.plain import MisfitError, from_plain
from glit.recipes.resources import builtin_calibrations
from glit.rules.evidence import pair_evidence, support_evidence
from glit.rules.logistic import Logistic
from glit.rules.protocol import Matrix

FORMAT = "glit-calibration-2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fitted calibration, valid for one rule and the scores of one matcher."""

    rule: Mapping[str, Any]
    """The rule and its options, as in ``[pair]``."""
    scores: Mapping[str, Any]
    """The source of the scores: the identity of the matcher, and settings of ``[score]`` that are
    not the default."""
    pair: Logistic
    """Regression for the probability of a sentence's best region."""
    support: Logistic | None = None
    """Regression for the support of a sentence."""
    fitted_on: Mapping[str, Any] = field(default_factory=dict)
    """Pairs, right ones among them, and where they are from; for people."""

    def probabilities(
        self, value: Matrix, scores: Scores, regions: Sequence[Region]
    ) -> Float[np.ndarray, " S"]:
        """The probability of each sentence's best pair."""
        return self.pair(pair_evidence(value, scores, regions))

    def supports(self, scores: Scores, sentences: Sequence[Sentence]) -> Float[np.ndarray, " S"]:
        """The support of each sentence; NaN without a support regression or evidence."""
        if self.support is None:
            return np.full(len(scores.similarity), np.nan, dtype=np.float32)
        return self.support(support_evidence(scores, sentences))

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
            return from_plain(cls, kept)
        except MisfitError as error:
            raise RecipeError(f"{where}: not a calibration ({error})") from error


def find_calibration(name: str) -> Calibration | None:
    """The calibration of a name that ships with glit, or of a file; None for no name.

    Raises:
        RecipeError: there is none, or it is damaged.
    """
    if not name:
        return None
    shipped = builtin_calibrations()
    if "/" not in name and not name.endswith(".json") and name not in shipped:
        raise RecipeError(f"[pair] calibration: {name!r}: {closest(name, shipped)}")
    return read_calibration(shipped.get(name, Path(name)))


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


def identity_of_scores(
    models: Mapping[str, Mapping[str, str]], score: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the identity of scores, which a calibration must fit to: the models behind the scores,
    and how they saw regions.

    Args:
        models: identities by role, as in the manifest; after a merge of several, ``matcher-2``.
        score: the table ``[score]``.
    """
    crop = score.get("crop", "tight")
    return {
        **models.get("matcher", {}),
        **({} if crop == "tight" else {"crop": crop}),
        **({} if (scale := score.get("dense_scale", 1.0)) == 1 else {"dense_scale": scale}),
        **{
            role: dict(model)
            for role, model in models.items()
            if role.partition("-")[0] in ("grounder", "opinion") or role.startswith("matcher-")
        },
    }
