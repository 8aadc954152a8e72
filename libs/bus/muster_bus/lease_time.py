"""How long a lease lives without a renewal: as long as set, or longer while the broker or this machine is slow."""

import math
import time

_RENEWALS = 10
"""A lease outlives this many renewals as slow as the slowest recent one."""

_LONGEST = 5
"""The longest time to live, in multiples of the setting: so long others wait for a holder that has crashed."""

_DECAY = 0.9


def elapsed_s() -> float:
    """Return seconds since a fixed instant, including the time in which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class LeaseTime:
    """The time to live of an instance's leases, at least ``least_s`` seconds."""

    def __init__(self, least_s: int) -> None:
        self._least_s = least_s
        self._slowest_s = 0.0

    @property
    def seconds(self) -> int:
        """The time to live of the next renewal."""
        wanted = math.ceil(_RENEWALS * self._slowest_s)
        return min(max(wanted, self._least_s), _LONGEST * self._least_s)

    def observe(self, took_s: float) -> None:
        """Take note of how late a renewal was answered, in seconds after it was due."""
        self._slowest_s = max(took_s, _DECAY * self._slowest_s)
