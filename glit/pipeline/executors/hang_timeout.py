"""How long a worker may be silent before it is taken for lost."""

from __future__ import annotations

_LEAST_S, _FIRST_S = 300.0, 3600.0
_TIMES = 20


class HangTimeout:
    """The time that a worker may be silent: twenty times the longest silence that ended well, five
    minutes at least; an hour while nothing was heard yet.

    Args:
        wait_s: of the task's own longest waits, which ends by itself; twice that is always allowed.
        least_s: seconds.
        first_s: seconds.
    """

    def __init__(
        self, wait_s: float = 0.0, *, least_s: float = _LEAST_S, first_s: float = _FIRST_S
    ) -> None:
        self._least_s = max(least_s, 2 * wait_s)
        self._longest_s = first_s / _TIMES
        self._heard = False

    def heard(self, after_s: float) -> None:
        """A worker was silent for so long and then said something."""
        self._longest_s = max(self._longest_s, after_s) if self._heard else after_s
        self._heard = True

    @property
    def limit_s(self) -> float:
        """Seconds of silence after which a worker is ended."""
        return max(self._least_s, _TIMES * self._longest_s)
