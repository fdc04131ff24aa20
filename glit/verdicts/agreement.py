"""Agreement of two people beyond what chance gives."""

from __future__ import annotations

import math
from collections.abc import Sequence


def cohens_kappa(first: Sequence[str], second: Sequence[str]) -> float:
    """Cohen's kappa (1960) of two people's verdicts on the same items; NaN if there are none.

    1 is full agreement, 0 is that of chance; 1 too where both always say the same one thing.

    >>> cohens_kappa(["right", "right", "wrong", "wrong"], ["right", "wrong", "wrong", "wrong"])
    0.5
    """
    if not first:
        return math.nan
    number = len(first)
    agreed = sum(a == b for a, b in zip(first, second, strict=True)) / number
    chance = sum(first.count(each) * second.count(each) for each in {*first}) / number**2
    return 1.0 if chance == 1 else (agreed - chance) / (1 - chance)
