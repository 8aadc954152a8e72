"""What can be set of a simulated world."""

from __future__ import annotations

import msgspec

SECOND = 1_000_000
"""µs."""


class WorldSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the simulated runtime behaves, and what is kept of what happens. Times are µs.

    A replica runs ``launch_us`` after it was placed and is gone ``stop_us`` after it was asked to leave. After a change of the number of
    its workers a job stands still for ``pause_us``; an attempt that is cut short loses what was computed since the last checkpoint, one
    every ``checkpoint_us`` (0: loses nothing). A job whose size matters reports how fast it is ``report_us`` after every change of its size
    (0: never). ``policy`` is the elasticity policy. With ``renewals`` jobs that wait are told again
    whenever the numbers of their reason changed, as the running scheduler does; without, once for every reason. ``journal`` keeps every
    event; ``checks`` looks at the invariants after each. The world begins at ``epoch_us``.
    """

    pool: str = "simulated"
    policy: str = "none"
    launch_us: int = 2 * SECOND
    stop_us: int = SECOND
    pause_us: int = 0
    checkpoint_us: int = 0
    report_us: int = 30 * SECOND
    renewals: bool = False
    journal: bool = True
    checks: bool = False
    epoch_us: int = 1_600_000_000 * SECOND
