"""The simulated scaler: ``muster_core.autoscaling``, called like the running scaler does."""

from __future__ import annotations

from muster_core.autoscaling import ElasticSettings, ScaleProposal, next_check, plan, view_of_state
from muster_core.events import ScaleProposed
from muster_core.models import ELASTIC_POLICIES
from muster_core.scheduling import PoolState

NONE = "none"
_ASK_AGAIN_US = 15_000_000


class Scaler:
    """Proposes like the running scaler: a proposal without effect is not repeated at once.

    Raises KeyError for an unknown policy.
    """

    def __init__(self, policy: str) -> None:
        if policy not in ELASTIC_POLICIES:
            raise KeyError(policy)
        self._settings = ElasticSettings(policy=policy)
        self.next_look: int | None = None
        self._asked: dict[str, tuple[tuple[int, int, int], int]] = {}

    @property
    def idle(self) -> bool:
        """Whether it never proposes anything."""
        return self._settings.policy == NONE

    def look(self, state: PoolState, now: int) -> list[tuple[str, ScaleProposed]]:
        """Return the proposals at ``now`` (µs), by job; ``next_look`` then is when to evaluate again without an event, or None."""
        view = view_of_state(state)
        proposals: list[tuple[str, ScaleProposed]] = []
        again: list[int] = []
        for proposal in plan(view, now, self._settings):
            due = self._due(proposal, now)
            if due > now:
                again.append(due)
                continue
            self._asked[proposal.job_id] = (_what(proposal), now)
            proposals.append((proposal.job_id, proposal.to_event()))
        if (at := next_check(view, now, self._settings)) is not None:
            again.append(at)
        self.next_look = min(again, default=None)
        return proposals

    def forget(self, job_id: str) -> None:
        """Remove an ended job."""
        self._asked.pop(job_id, None)

    def _due(self, proposal: ScaleProposal, now: int) -> int:
        asked = self._asked.get(proposal.job_id)
        return now if asked is None or asked[0] != _what(proposal) else asked[1] + _ASK_AGAIN_US


def _what(proposal: ScaleProposal) -> tuple[int, int, int]:
    return (proposal.attempt, proposal.generation, proposal.target)
