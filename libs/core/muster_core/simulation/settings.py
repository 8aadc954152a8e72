"""Settings of a simulation."""

from __future__ import annotations

import msgspec

SECOND = 1_000_000
"""In µs."""


class SimulationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The behaviour of the simulated runtime, and what is recorded. Times are µs.

    Attributes:
        pool: The name of the pool.
        policy: The elastic policy.
        launch_us: From a placement to a running replica.
        stop_us: From SIGTERM to the end of a replica.
        pause_us: The standstill of a job after a resize.
        checkpoint_us: The interval between checkpoints; an attempt that is cut short loses the work since the last one.
            0: loses nothing.
        report_us: The time after a resize at which a scalable job reports its speed; 0: never.
        renewals: Publish waiting reasons whenever their numbers change, as the running scheduler does, instead of once
            for every code.
        journal: Keep every event.
        checks: Verify invariants after each event.
        epoch_us: The start of the simulation.
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
