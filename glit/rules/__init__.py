"""Rules of pairing: pure functions of a sample's stored scores.

A rule is a frozen dataclass whose fields are its options; none ever asks a model again.
:mod:`glit.rules.pairing` makes pairs of what a rule says, best pair first.
"""

from __future__ import annotations

from glit.rules.protocol import Rule as Rule
from glit.rules.rules import RULES as RULES
