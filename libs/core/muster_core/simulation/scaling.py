"""The simulated scaler: ``muster_core.autoscaling``, called like the running scaler does."""

from __future__ import annotations

from muster_core.autoscaling import ElasticSettings, ProposalHistory, ScaleProposal, next_check, plan
from muster_core.models import ELASTIC_POLICIES
from muster_core.scheduling import PoolState

NONE = "none"


class SimulatedScaler:
    """Proposes like the running scaler.

    Raises:
        KeyError: The policy is unknown.
    """

    def __init__(self, policy: str) -> None:
        if policy not in ELASTIC_POLICIES:
            raise KeyError(policy)
        self._settings = ElasticSettings(policy=policy)
        self._history = ProposalHistory()
        self.next_look: int | None = None

    @property
    def idle(self) -> bool:
        """Return whether it never proposes anything."""
        return self._settings.policy == NONE

    def look(self, state: PoolState, now: int) -> list[ScaleProposal]:
        """Return the proposals at ``now`` (µs); ``next_look`` then is when to plan again without an event, or None."""
        planned = plan(state, now, self._settings)
        proposals, repeat_at = self._history.filter(planned, state.index.version, now)
        self._history.retain(state.index.records)
        check_at = next_check(state, now, self._settings)
        self.next_look = min((at for at in (repeat_at, check_at) if at is not None), default=None)
        return proposals
