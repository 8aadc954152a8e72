"""What was proposed is not proposed again for nothing."""

from __future__ import annotations

import msgspec

from muster_core.autoscaling import Asked, ScaleProposal
from muster_core.models import Reason

SECOND = 1_000_000
GROW = ScaleProposal(
    job_id="a",
    role="worker",
    size=1,
    target=3,
    policy="dragon",
    attempt=1,
    generation=1,
    reason=Reason(code="Idle"),
)
GIVE = msgspec.structs.replace(GROW, size=3, target=2, beneficiary="head", donors=2)
GIVE_TOO = msgspec.structs.replace(GIVE, job_id="b")


def _asked(asked: Asked, *proposals: ScaleProposal, version: int = 1, at: float = 0) -> list[str]:
    news, _ = asked.sift(proposals, version, int(at * SECOND))
    return [one.job_id for one in news]


def test_what_was_asked_is_asked_again_only_after_a_change() -> None:
    asked = Asked(again_s=15)
    assert _asked(asked, GROW) == ["a"]
    assert asked.sift([GROW], 1, 14 * SECOND) == ([], 300 * SECOND)
    assert _asked(asked, GROW, at=15) == []
    assert asked.sift([GROW], 2, 14 * SECOND) == ([], 15 * SECOND)
    assert _asked(asked, GROW, version=2, at=15) == ["a"]


def test_an_answer_that_never_comes_is_not_waited_for_for_ever() -> None:
    asked = Asked(again_s=15)
    assert _asked(asked, GROW) == ["a"]
    assert _asked(asked, GROW, at=300) == ["a"]


def test_another_proposal_is_asked_at_once() -> None:
    asked = Asked()
    assert _asked(asked, GROW) == ["a"]
    assert _asked(asked, msgspec.structs.replace(GROW, target=2)) == ["a"]
    assert _asked(asked, msgspec.structs.replace(GROW, target=2, generation=2)) == ["a"]


def test_what_goes_together_is_asked_together() -> None:
    asked = Asked()
    assert _asked(asked, GIVE) == ["a"]
    assert _asked(asked, GIVE, GIVE_TOO) == ["a", "b"]
    assert _asked(asked, GIVE, GIVE_TOO) == []


def test_jobs_that_are_gone_are_forgotten() -> None:
    asked = Asked()
    assert _asked(asked, GROW) == ["a"]
    asked.keep(["b"])
    assert _asked(asked, GROW) == ["a"]
