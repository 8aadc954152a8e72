"""How long to wait before a program is started again."""

_FIRST_S = 0.2
_LONGEST_S = 10.0
_FORGIVEN_S = 30.0


class Backoff:
    """Doubles the wait with every end, and forgets the past once a program stayed up long enough.

    Args:
        first_s: the first wait.
        longest_s: no wait is longer.
        forgiven_s: a program that was up for this long starts again from `first_s`.
    """

    def __init__(
        self, *, first_s: float = _FIRST_S, longest_s: float = _LONGEST_S, forgiven_s: float = _FORGIVEN_S
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._forgiven_s = forgiven_s
        self._next_s = first_s

    def after(self, up_s: float) -> float:
        """Return the seconds to wait after an end that came `up_s` seconds after the start."""
        if up_s >= self._forgiven_s:
            self._next_s = self._first_s
        wait_s = self._next_s
        self._next_s = min(wait_s * 2, self._longest_s)
        return wait_s
