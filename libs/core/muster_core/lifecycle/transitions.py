"""Valid transitions: which events are valid in which phase.

An invalid transition is reported, counted and ignored.
"""

from __future__ import annotations

from muster_core.events import (
    CommandRequested,
    Event,
    JobAdopted,
    JobEvicted,
    JobFinished,
    JobPlaced,
    JobRejected,
    JobResized,
    JobRestarting,
    JobSubmitted,
    JobValidated,
    JobWaiting,
    ProgressReported,
    ReplicasChanged,
    ScaleProposed,
)
from muster_core.models import TERMINAL_PHASES, Phase

WAITING_PHASES = frozenset({Phase.QUEUED, Phase.EVICTED, Phase.RESTARTING})
"""Phases without a membership, in which a job may be placed."""

ACTIVE_PHASES = frozenset({Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING})
"""Phases with a membership."""

_LIVING_PHASES = frozenset(Phase) - TERMINAL_PHASES
_EVERY_PHASE = frozenset(Phase)

VALID_PHASES: dict[type[Event], frozenset[Phase]] = {
    JobSubmitted: frozenset(),
    JobValidated: frozenset({Phase.SUBMITTED}),
    JobRejected: frozenset({Phase.SUBMITTED}),
    JobWaiting: WAITING_PHASES,
    JobPlaced: WAITING_PHASES,
    JobResized: ACTIVE_PHASES,
    JobEvicted: ACTIVE_PHASES,
    JobRestarting: ACTIVE_PHASES,
    JobFinished: _LIVING_PHASES,
    JobAdopted: _LIVING_PHASES - {Phase.SUBMITTED},
    # Ends of replicas, commands (delete), outdated proposals and late reports arrive in every phase and change none by
    # themselves.
    ReplicasChanged: _EVERY_PHASE,
    CommandRequested: _EVERY_PHASE,
    ScaleProposed: _EVERY_PHASE,
    ProgressReported: _EVERY_PHASE,
}
"""The phases in which each event is valid."""
