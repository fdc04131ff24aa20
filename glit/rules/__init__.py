"""Rules of pairing: pure functions from a sample's stored scores to its pairs, best pair first.

A rule is a frozen dataclass whose fields are its options; none ever asks a model again.
"""

from __future__ import annotations

from glit.rules.argmax import Argmax
from glit.rules.lism import Lism
from glit.rules.protocol import Rule

RULES: dict[str, type[Rule]] = {
    "argmax": Argmax,
    "lism": Lism,
}
"""By the name that ``pair.rule`` takes."""
