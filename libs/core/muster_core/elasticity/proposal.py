"""What a policy answers: who should grow, to what size, and why."""

from __future__ import annotations

import msgspec

from muster_core.facts import ScaleProposed
from muster_core.models import Reason


class ScaleProposal(msgspec.Struct, frozen=True, kw_only=True):
    """``role`` of a job should go from ``size`` to ``target``, computed on ``attempt`` and ``generation``.

    ``gain`` is the expected speed-up in thousandths of one worker, 0 where the policy does not weigh it.
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

    def to_fact(self) -> ScaleProposed:
        """The fact that it becomes."""
        return ScaleProposed(
            role=self.role,
            size=self.size,
            target=self.target,
            policy=self.policy,
            attempt=self.attempt,
            generation=self.generation,
            reason=self.reason,
            gain=self.gain,
        )
