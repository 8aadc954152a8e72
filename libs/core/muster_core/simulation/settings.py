"""Settings of a simulation."""

from __future__ import annotations

import msgspec

SECOND = 1_000_000
"""In µs."""


class WorldSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The behaviour of the simulated runtime, and what is recorded. Times are µs.

    A replica runs ``launch_us`` after its placement and is gone ``stop_us`` after it was asked to stop. After a resize a
    job stands still for ``pause_us``; an attempt that is cut short loses what was computed since the last checkpoint, one
    every ``checkpoint_us`` (0: loses nothing). A job whose size matters reports its speed ``report_us`` after every
    resize (0: never). ``policy`` is the elastic policy. With ``renewals`` waiting reasons are published whenever their
    numbers change, like the running scheduler; without, once for every code. ``journal`` keeps every event; ``checks``
    verifies invariants after each. The simulation starts at ``epoch_us``.
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
