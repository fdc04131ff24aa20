"""The words and colours of the procedural scenes: every value an attribute can take.

Ten shapes, ten colours, three sizes, three patterns, nine places, six backgrounds, three lights.
Chosen so that a model that sees 128 pixels in patches of 16 can tell every value from the others.
"""

from __future__ import annotations

SHAPES = (
    "circle",
    "square",
    "triangle",
    "star",
    "cross",
    "ring",
    "crescent",
    "heart",
    "hourglass",
    "arch",
)

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (220, 30, 30),
    "orange": (250, 130, 0),
    "yellow": (250, 230, 30),
    "green": (20, 160, 40),
    "turquoise": (30, 210, 210),
    "blue": (30, 60, 220),
    "purple": (130, 30, 170),
    "pink": (255, 140, 190),
    "white": (245, 245, 245),
    "black": (20, 20, 20),
}
"""Name to sRGB under bright daylight."""

SIZES: dict[str, tuple[float, float]] = {
    "small": (0.23, 0.26),
    "medium": (0.31, 0.35),
    "large": (0.41, 0.46),
}
"""Name to the range of the side of an object's square extent, as a fraction of the picture."""

PATTERNS = ("plain", "striped", "dotted")

PLACES: tuple[tuple[str, ...], ...] = (
    ("at the top left", "in the top left corner"),
    ("at the top", "in the middle of the top"),
    ("at the top right", "in the top right corner"),
    ("on the left", "at the left"),
    ("in the centre", "in the middle of the picture"),
    ("on the right", "at the right"),
    ("at the bottom left", "in the bottom left corner"),
    ("at the bottom", "in the middle of the bottom"),
    ("at the bottom right", "in the bottom right corner"),
)
"""The nine cells of a 3x3 grid in reading order; each with its phrases, the plainest first."""

PLACE_NAMES = tuple(phrases[0] for phrases in PLACES)

BACKGROUNDS: dict[str, str] = {
    "grass": "a grassy field",
    "sand": "a sandy beach",
    "wood": "a wooden floor",
    "brick": "a brick wall",
    "tiles": "a tiled floor",
    "water": "a stretch of water",
}
"""Name to the phrase a caption uses."""

LIGHTS: dict[str, tuple[str, tuple[float, float, float]]] = {
    "daylight": ("bright daylight", (1.0, 1.0, 1.0)),
    "evening": ("warm evening light", (1.0, 0.85, 0.60)),
    "moonlight": ("dim moonlight", (0.42, 0.46, 0.60)),
}
"""Name to the phrase a caption uses and the gain on red, green and blue."""

LEVELS = ("easy", "normal", "hard", "varied")
"""``varied`` has the pictures of ``hard``, and captions that begin in many ways."""
