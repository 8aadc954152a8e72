"""A proposal without effect is repeated only after the pool has changed, or after a long time."""

from __future__ import annotations

import msgspec

from muster_core.autoscaling import ProposalHistory, ScaleProposal
from muster_core.events import ScaleProposed
from muster_core.models import Reason

SECOND = 1_000_000
GROWTH = ScaleProposed(
    role="worker", size=1, target=3, policy="dragon", attempt=1, generation=1, reason=Reason(code="Idle")
)
SHRINKING = msgspec.structs.replace(GROWTH, size=3, target=2, beneficiary="starved", donors=2)


def _due(
    history: ProposalHistory, *, version: int = 1, at: float = 0, **proposals: ScaleProposed
) -> list[str]:
    due, _ = history.filter(
        [ScaleProposal(job_id, event) for job_id, event in proposals.items()], version, int(at * SECOND)
    )
    return [proposal.job_id for proposal in due]


def test_a_proposal_is_repeated_only_after_a_change_of_the_pool() -> None:
    history = ProposalHistory(repeat_after_s=15)
    proposals = [ScaleProposal("a", GROWTH)]
    assert _due(history, a=GROWTH) == ["a"]
    assert history.filter(proposals, 1, 14 * SECOND) == ([], 300 * SECOND)
    assert _due(history, a=GROWTH, at=15) == []
    assert history.filter(proposals, 2, 14 * SECOND) == ([], 15 * SECOND)
    assert _due(history, a=GROWTH, version=2, at=15) == ["a"]


def test_a_proposal_without_an_answer_is_repeated_after_a_long_time() -> None:
    history = ProposalHistory(repeat_after_s=15)
    assert _due(history, a=GROWTH) == ["a"]
    assert _due(history, a=GROWTH, at=300) == ["a"]


def test_a_different_proposal_is_due_at_once() -> None:
    history = ProposalHistory()
    assert _due(history, a=GROWTH) == ["a"]
    assert _due(history, a=msgspec.structs.replace(GROWTH, target=2)) == ["a"]
    assert _due(history, a=msgspec.structs.replace(GROWTH, target=2, generation=2)) == ["a"]


def test_proposals_for_one_beneficiary_are_due_together() -> None:
    history = ProposalHistory()
    assert _due(history, a=SHRINKING) == ["a"]
    assert _due(history, a=SHRINKING, b=SHRINKING) == ["a", "b"]
    assert _due(history, a=SHRINKING, b=SHRINKING) == []


def test_ended_jobs_are_forgotten() -> None:
    history = ProposalHistory()
    assert _due(history, a=GROWTH) == ["a"]
    history.retain(["b"])
    assert _due(history, a=GROWTH) == ["a"]
