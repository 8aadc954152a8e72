"""What was asked of running jobs and is not decided yet: sizes by hand, and proposals to grow or shrink.

Both are bound to one attempt; a proposal also to the generation that it was computed on. What they were bound to moves on: they lapse.
"""

from __future__ import annotations

from muster_core.events import JobResized, ScaleProposed, StoredEvent
from muster_core.models import JobRecord
from muster_core.scheduling.queues.giving import may_leave
from muster_core.scheduling.queues.resizing import reachable, resizable, size_of


class Requests:
    """Open requests: ``by_hand`` has the size asked for by (job id, role), ``proposals`` the latest proposal by job id.

    ``refused`` counts the proposals that were dropped. Proposals to give room to the same job stand and fall together.
    """

    def __init__(self) -> None:
        self.by_hand: dict[tuple[str, str], int] = {}
        self.proposals: dict[str, ScaleProposed] = {}
        self.refused = 0

    def note(self, stored: StoredEvent) -> None:
        """Take in a proposal, or the answer to one; ``settle`` has to follow."""
        job_id = stored.job_id
        match stored.event:
            case ScaleProposed() as proposal:
                self.refuse(job_id)
                self.proposals[job_id] = proposal
            case JobResized(policy=policy, reason=reason):
                answered = self.proposals.get(job_id)
                if answered is not None and (answered.policy, answered.reason) == (policy, reason):
                    self._drop(job_id, answered)
            case _:
                pass

    def settle(self, record: JobRecord) -> None:
        """Take in the sizes that the job is asked to have and has not reached, and drop a proposal that does not hold for it any more."""
        job_id = record.job_id
        for key in [key for key in self.by_hand if key[0] == job_id]:
            del self.by_hand[key]
        for role, target in record.asked.items():
            if reachable(record, role, target) not in (None, size_of(record, role)):
                self.by_hand[(job_id, role)] = target
        proposal = self.proposals.get(job_id)
        if proposal is not None and not self._valid(proposal, record):
            self.refuse(job_id)

    def refuse(self, job_id: str) -> None:
        """Drop a proposal, and those that it was to go with, and count them."""
        proposal = self.proposals.get(job_id)
        if proposal is not None:
            self.refused += self._drop(job_id, proposal)

    def growths(self) -> dict[str, ScaleProposed]:
        """The proposals to grow, by job id."""
        return {job_id: one for job_id, one in self.proposals.items() if not one.for_job}

    def shrinkages(self) -> dict[str, dict[str, ScaleProposed]]:
        """The proposals to shrink of which none is missing: by the job that is to have the room, then by the one that gives."""
        groups: dict[str, dict[str, ScaleProposed]] = {}
        for job_id, one in self.proposals.items():
            if one.for_job:
                groups.setdefault(one.for_job, {})[job_id] = one
        return {
            taker: group
            for taker, group in groups.items()
            if all(len(group) >= one.givers for one in group.values())
        }

    def _drop(self, job_id: str, proposal: ScaleProposed) -> int:
        """Forget a proposal and those that it was to go with; how many that are."""
        together = [job_id]
        if proposal.for_job:
            together = [other for other, one in self.proposals.items() if one.for_job == proposal.for_job]
        for one in together:
            del self.proposals[one]
        return len(together)

    def _valid(self, proposal: ScaleProposed, record: JobRecord) -> bool:
        role = record.job.role(proposal.role) if record.job else None
        if (
            role is None
            or not resizable(record)
            or (proposal.attempt, proposal.generation) != (record.attempt, record.generation)
            or (record.job_id, proposal.role) in self.by_hand
        ):
            return False
        if proposal.for_job:
            return may_leave(record, proposal)
        return max(role.min, size_of(record, proposal.role) + 1) <= proposal.target <= role.max
