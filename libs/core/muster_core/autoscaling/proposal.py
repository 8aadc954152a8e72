"""Proposals: which job to resize, to what size, and why."""

from __future__ import annotations

import msgspec

from muster_core.events import ReplicaRef, ScaleProposed
from muster_core.models import Reason


class ScaleProposal(msgspec.Struct, frozen=True, kw_only=True):
    """``role`` of a job should go from ``size`` to ``target``, computed on ``attempt`` and ``generation``.

    ``gain`` is the expected speed-up in thousandths of one worker, negative for a scale-down. Then ``removed`` leave so
    that ``beneficiary`` fits, and ``donors`` jobs shrink for it.
    """

    job_id: str
    role: str
    size: int
    target: int
    policy: str
    attempt: int
    generation: int
    reason: Reason
    gain: int = 0
    removed: tuple[ReplicaRef, ...] = ()
    beneficiary: str = ""
    donors: int = 0

    def to_event(self) -> ScaleProposed:
        """Return the event of this proposal."""
        return ScaleProposed(
            role=self.role,
            size=self.size,
            target=self.target,
            policy=self.policy,
            attempt=self.attempt,
            generation=self.generation,
            reason=self.reason,
            gain=self.gain,
            removed=self.removed,
            beneficiary=self.beneficiary,
            donors=self.donors,
        )
