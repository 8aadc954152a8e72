"""What was asked of running jobs and is not decided yet: sizes by hand, and proposals to grow.

Both are bound to one attempt; a proposal also to the generation that it was computed on. What they were bound to moves on: they lapse.
"""

from __future__ import annotations

from muster_core.facts import Command, CommandRequested, JobResized, ScaleProposed, Stamped
from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.models import JobRecord
from muster_core.queues.resizing import reachable, resizable, size_of


class Requests:
    """Open requests: ``by_hand`` has the size asked for by (job id, role), ``proposals`` the latest proposal by job id.

    ``refused`` counts the proposals that were dropped.
    """

    def __init__(self) -> None:
        self.by_hand: dict[tuple[str, str], int] = {}
        self.proposals: dict[str, ScaleProposed] = {}
        self.refused = 0

    def note(self, stamped: Stamped) -> None:
        """Take in a request, or the answer to one; ``settle`` has to follow."""
        job_id = stamped.job_id
        match stamped.fact:
            case CommandRequested(command=Command.SCALE, role=role, target=int(target)):
                self.by_hand[(job_id, role)] = target
            case ScaleProposed() as proposal:
                self.refuse(job_id)
                self.proposals[job_id] = proposal
            case JobResized(policy=policy, reason=reason):
                answered = self.proposals.get(job_id)
                if answered is not None and (answered.policy, answered.reason) == (policy, reason):
                    del self.proposals[job_id]
            case _:
                pass

    def settle(self, record: JobRecord) -> None:
        """Drop what the job has reached, and what does not hold for it any more."""
        job_id = record.job_id
        for key in [key for key in self.by_hand if key[0] == job_id]:
            wanted = reachable(record, key[1], self.by_hand[key])
            reached = wanted is None or wanted == size_of(record, key[1])
            if reached or record.phase not in ACTIVE_PHASES:
                del self.by_hand[key]
        proposal = self.proposals.get(job_id)
        if proposal is not None and not self._valid(proposal, record):
            self.refuse(job_id)

    def refuse(self, job_id: str) -> None:
        """Drop a proposal and count it."""
        if self.proposals.pop(job_id, None) is not None:
            self.refused += 1

    def _valid(self, proposal: ScaleProposed, record: JobRecord) -> bool:
        role = record.job.role(proposal.role) if record.job else None
        return (
            role is not None
            and resizable(record)
            and (proposal.attempt, proposal.generation) == (record.attempt, record.generation)
            and max(role.min, size_of(record, proposal.role) + 1) <= proposal.target <= role.max
            and (record.job_id, proposal.role) not in self.by_hand
        )
