"""Tell what the numbers of YOLO's lines are: corners, key points, or the number of a track.

ultralytics writes a box, corners or key points, then the score if asked for, then the number of the
track if it tracked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

Kind = Literal["corners", "points", "track"]
LONG = 6
"""Numbers after the class from which a line may be of any kind; a box has 4, with a score 5."""
_FEWEST_WITH_TRACK = 5
_TURNED_WITH_BOTH = 10
"""Numbers of four corners, a score and a track."""
_MOST_VISIBILITY = 2
_MOST_SHARE = 1.01
_SLACK = 0.02
"""Shares of the picture by which key points leave their box, and by which corners are rounded."""
_LEAST_CORNERS = 0.2
"""Share of lines that can be corners alone, from which all are corners that can be."""
TASKS: dict[str, Kind] = {
    "segment": "corners", "obb": "corners", "pose": "points", "track": "track",
}  # fmt: skip
"""Values of ``task`` in a data.yaml."""


class LineKinds:
    """The kinds that long lines have, over all lines of a set.

    Args:
        stated: their kind, if the set says it.
    """

    def __init__(self, stated: Kind | None = None) -> None:
        self._stated: Kind | None = None if stated == "track" else stated
        self._tracked = stated == "track"
        self._lines = self._corners = 0
        self._others: set[Kind] = set()
        self._lengths: set[int] = set()
        self._ends: set[float] = set()

    def add(self, lines: Iterable[Sequence[float]]) -> None:
        """Add lines: their numbers without the class."""
        for values in lines:
            if len(values) >= _FEWEST_WITH_TRACK and _ends_with_track(values):
                self._tracked = True
                values = values[:-1]
            if len(values) < LONG:
                continue
            self._ends.add(values[-1])
            kinds = _kinds(values)
            self._lines += 1
            self._lengths.add(len(values))
            self._corners += kinds == {"corners"}
            if "corners" not in kinds:
                self._others |= kinds

    def without_track(self, values: Sequence[float]) -> Sequence[float]:
        """A line without the number of a track, which ends the lines of a set that has any."""
        is_long = len(values) >= _FEWEST_WITH_TRACK and self._stated != "points"
        is_turned = len(values) == _TURNED_WITH_BOTH and _is_parallelogram(values[:-1])
        ends = (self._tracked and is_long) or is_turned
        return values[:-1] if ends and _is_number(values[-1]) else values

    def of(self, values: Sequence[float]) -> Kind:
        """The kind of a line without the number of a track.

        Raises:
            ValueError: it is of no kind, or nothing tells of which of several.
        """
        if self._stated is not None:
            return self._stated
        kinds: set[Kind] = _kinds(values)
        if not kinds:
            raise ValueError(
                f"{len(values) + 1} fields that are no box, no corners and no key points in shares "
                "of the picture"
            )
        if _is_parallelogram(values):
            return "corners"
        ends_with_track = self._may_end_with_track and len(values) % 2 == 0
        if len(kinds) == 1 and not ends_with_track:
            return kinds.pop()
        if self._are_corners and "corners" in kinds and not ends_with_track:
            return "corners"
        told: set[Kind] = kinds & self._others
        if len(told) == 1:
            return next(iter(told))
        if "points" in kinds and _has_visibilities(values):
            return "points"
        number, pairs = len(values) - 4, (len(values) - 4) // 2
        raise ValueError(
            f"{len(values) + 1} fields, which may be a box and {number} numbers of key points or "
            "tracks, or corners; say which in data.yaml, as 'task: segment', 'task: track' or "
            f"'kpt_shape: [{pairs}, 2]'"
        )

    @property
    def _may_end_with_track(self) -> bool:
        """True if all lines end with the same whole number, as those of one track: with a score
        before it, the two would be a corner."""
        return not self._tracked and self._ends in ({0.0}, {1.0})

    @property
    def _are_corners(self) -> bool:
        if (
            len(self._lengths) == 1 and self._lines > 1
        ):  # segments have as many corners as they like
            return self._corners == self._lines
        return self._corners >= max(1, _LEAST_CORNERS * self._lines)


def _is_number(value: float) -> bool:
    return value >= 0 and value % 1 == 0


def _ends_with_track(values: Sequence[float]) -> bool:
    """Return whether a line ends with a number that can be nothing but that of a track."""
    last = values[-1]
    plain = all(1 - _MOST_SHARE <= each <= _MOST_SHARE for each in values[:-1])
    is_visibility = last <= _MOST_VISIBILITY and _has_visibilities(values)
    return plain and last > _MOST_SHARE and _is_number(last) and not is_visibility


def _kinds(values: Sequence[float]) -> set[Kind]:
    """Everything that a line can be by itself."""
    if _is_parallelogram(values):
        return {"corners"}
    found: set[Kind] = set()
    shares = values[:-1] if len(values) % 2 else values
    if all(1 - _MOST_SHARE <= each <= _MOST_SHARE for each in values) and len(shares) >= LONG:
        found.add("corners")
    if not all(0 <= each <= _MOST_SHARE for each in values[:4]) or min(values[2:4]) <= 0:
        return found
    if len(values) == LONG and 0 <= values[4] <= 1 and _is_number(values[5]):
        found.add("track")
    if _has_visibilities(values) or _has_points_inside(values):
        found.add("points")
    return found


def _is_parallelogram(values: Sequence[float]) -> bool:
    """Return whether a line has the four corners of a turned box, and may be a score."""
    if len(values) not in (8, 9) or not all(abs(each) <= _MOST_SHARE for each in values):
        return False
    (x0, y0, x1, y1, x2, y2, x3, y3), rounding = values[:8], _SLACK / 4
    area = abs((x1 - x0) * (y3 - y0) - (x3 - x0) * (y1 - y0))
    return (
        area > rounding**2
        and abs(x0 + x2 - x1 - x3) <= rounding
        and abs(y0 + y2 - y1 - y3) <= rounding
    )


def _has_visibilities(values: Sequence[float]) -> bool:
    """Return whether every third number after the box is 0, 1 or 2."""
    rest = values[4 : len(values) - (len(values) - 4) % 3]
    is_scored = (len(values) - 4) % 3 == 1
    return bool(rest) and (is_scored or (len(values) - 4) % 3 == 0) and {*rest[2::3]} <= {0, 1, 2}


def _has_points_inside(values: Sequence[float]) -> bool:
    """Return whether the numbers after the box are points in it, or at 0, 0 for a hidden one."""
    x, y, width, height = values[:4]
    rest = values[4 : len(values) - len(values) % 2]
    points = zip(rest[::2], rest[1::2], strict=True)
    return bool(rest) and all(
        (abs(a - x) <= width / 2 + _SLACK and abs(b - y) <= height / 2 + _SLACK) or a == b == 0
        for a, b in points
    )
