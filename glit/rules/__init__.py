"""Rules of pairing: pure functions of a sample's stored scores.

A rule is a frozen dataclass whose fields are its options; none ever asks a model again.
:mod:`glit.rules.pairing` makes pairs of what a rule says, best pair first.
"""

from __future__ import annotations

from glit.rules.argmax import Argmax
from glit.rules.centred import Centred
from glit.rules.dual_softmax import DualSoftmax
from glit.rules.lism import Lism
from glit.rules.mutual import Mutual
from glit.rules.protocol import Rule
from glit.rules.sinkhorn import Sinkhorn

RULES: dict[str, type[Rule]] = {
    "argmax": Argmax,
    "lism": Lism,
    "centred": Centred,
    "dual-softmax": DualSoftmax,
    "sinkhorn": Sinkhorn,
    "mutual": Mutual,
}
"""By the name that ``pair.rule`` takes."""
