"""Proposals: which job to resize, to what size and why, and when to repeat a proposal without effect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from muster_core.autoscaling.policies import ElasticJob
from muster_core.autoscaling.settings import ResizableJob
from muster_core.events import ScaleProposed
from muster_core.lifecycle import MILLI
from muster_core.models import JobRecord, Reason
from muster_core.quantities import counted, format_demand
from muster_core.scheduling.placement import Snapshot, node_rules_of
from muster_core.scheduling.resizing import RemovableReplica

IDLE = "Idle"
"""The code of growth into idle capacity."""

STARVED_JOB = "StarvedJob"
"""The code of shrinking for a starved job."""

PROPOSAL_CODES = (IDLE, STARVED_JOB)
"""Why a resize is proposed."""

_US = 1_000_000
_UNCHANGED_FACTOR = 20
"""How many times longer a proposal waits for its repetition when the pool has not changed."""


class ScaleProposal(NamedTuple):
    """The proposal to resize a job."""

    job_id: str
    event: ScaleProposed


class _Proposed(NamedTuple):
    key: tuple[object, ...]
    at: int
    version: int


class ProposalHistory:
    """The last proposal for each job: one without effect is repeated only after the pool has changed.

    The scheduler may have rejected the proposal, or may have been replaced before it read it; so after a long time the
    proposal is repeated in any case.

    Args:
        repeat_after_s: Seconds after which a proposal may be repeated if the pool has changed since.
    """

    def __init__(self, repeat_after_s: int = 15) -> None:
        self._repeat_after_us = repeat_after_s * _US
        self._last: dict[str, _Proposed] = {}

    def filter(
        self, proposals: Iterable[ScaleProposal], version: int, now: int
    ) -> tuple[list[ScaleProposal], int | None]:
        """Keep the proposals that are due; those for the same beneficiary become due together.

        Args:
            proposals: The proposals of a plan.
            version: A number that changes whenever free capacity changes.
            now: The time in µs.

        Returns:
            The proposals to publish now, and when (µs) the next of the others is due.
        """
        groups: dict[str, list[ScaleProposal]] = {}
        for proposal in proposals:
            groups.setdefault(proposal.event.beneficiary or proposal.job_id, []).append(proposal)
        due: list[ScaleProposal] = []
        later: list[int] = []
        for group in groups.values():
            due_at = min(self._due_at(proposal, version, now) for proposal in group)
            if due_at > now:
                later.append(due_at)
                continue
            due += group
            self._last.update(
                (proposal.job_id, _Proposed(_key(proposal.event), now, version)) for proposal in group
            )
        return due, min(later, default=None)

    def retain(self, job_ids: Iterable[str]) -> None:
        """Forget all jobs but these."""
        self._last = {job_id: self._last[job_id] for job_id in self._last.keys() & set(job_ids)}

    def _due_at(self, proposal: ScaleProposal, version: int, now: int) -> int:
        last = self._last.get(proposal.job_id)
        if last is None or last.key != _key(proposal.event):
            return now
        return last.at + self._repeat_after_us * (1 if last.version != version else _UNCHANGED_FACTOR)


def scale_up_proposal(
    job: ResizableJob, before: ElasticJob, after: ElasticJob, snapshot: Snapshot
) -> ScaleProposal:
    """Return the proposal to grow; ``snapshot`` has the free capacity before any growth."""
    role = job.role
    resource = "gpu" if role.template.requests.gpu else "cpu"
    admitted = snapshot.filter(node_rules_of(role.template)).feasible
    free = [
        snapshot.free_of(snapshot.free_capacity(name), resource)
        for name in admitted
        if snapshot.class_of(name) is not None
    ]
    idle, nodes = sum(free), sum(1 for amount in free if amount)
    idle_period_s = job.settings.idle_period_us // _US
    reason = Reason(
        code=IDLE,
        message=(
            f"{format_demand(resource, idle)} idle for {idle_period_s} s on {counted(nodes, 'node')}: "
            f"grow {role.name} from {before.size} to {after.size} (max {role.max})"
        ),
        numbers={
            f"idle.{resource}": idle,
            "nodes": nodes,
            "idle_period_s": idle_period_s,
            "from": before.size,
            "to": after.size,
            "max": role.max,
            **_speed_up(before, after),
        },
    )
    return ScaleProposal(job.record.job_id, _event(job, before, after, job.settings.policy, reason))


def scale_down_proposal(
    job: ResizableJob,
    before: ElasticJob,
    replicas: Sequence[RemovableReplica],
    beneficiary: JobRecord,
    *,
    donors: int,
    policy: str,
    now: int,
) -> ScaleProposal:
    """Return the proposal to remove ``replicas`` of one of ``donors`` jobs, so that ``beneficiary`` fits."""
    waited_s = (now - beneficiary.waiting_since) // _US
    after = before.resized(-len(replicas))
    nodes = sorted({one.allocation.node for one in replicas})
    reason = Reason(
        code=STARVED_JOB,
        message=(
            f"{beneficiary.name} ({beneficiary.job_id}) has waited {waited_s} s: shrink {job.role.name} from "
            f"{before.size} to {after.size} (min {job.role.min}) on {', '.join(nodes)}"
        ),
        numbers={
            "waited_s": waited_s,
            "from": before.size,
            "to": after.size,
            "min": job.role.min,
            **_speed_up(before, after),
        },
    )
    event = msgspec.structs.replace(
        _event(job, before, after, policy, reason),
        removed=tuple(sorted((one.ref for one in replicas), key=lambda ref: -ref.index)),
        beneficiary=beneficiary.job_id,
        donors=donors,
    )
    return ScaleProposal(job.record.job_id, event)


def _event(
    job: ResizableJob, before: ElasticJob, after: ElasticJob, policy: str, reason: Reason
) -> ScaleProposed:
    gain = after.speed_up.at(after.workers) - before.speed_up.at(before.workers)
    return ScaleProposed(
        role=job.role.name,
        size=before.size,
        target=after.size,
        policy=policy,
        attempt=job.record.attempt,
        generation=job.record.generation,
        reason=reason,
        gain=int(gain * MILLI),
    )


def _key(event: ScaleProposed) -> tuple[object, ...]:
    """Return what identifies a proposal."""
    return (event.attempt, event.generation, event.target, event.removed, event.beneficiary)


def _speed_up(before: ElasticJob, after: ElasticJob) -> dict[str, int]:
    """Return the speed-up at both sizes, in thousandths of a worker."""
    return {
        "speed_up.from": int(before.speed_up.at(before.workers) * MILLI),
        "speed_up.to": int(after.speed_up.at(after.workers) * MILLI),
        "serial": int(before.speed_up.serial * MILLI),
    }
