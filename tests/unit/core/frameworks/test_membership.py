"""The membership file: who joins is in it first, who leaves is in it to the last."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from muster_core.frameworks import membership
from muster_core.models import ReplicaRecord, ReplicaState

if TYPE_CHECKING:
    from .conftest import GangBuilder

S = ReplicaState


def members(gang: GangBuilder, *replicas: ReplicaRecord) -> dict[str, dict[str, str]]:
    """Role -> index -> address, as written."""
    job = gang.job(("ps", 1, 1), ("worker", 2, 4))
    return json.loads(membership(gang.record(*replicas), gang.addresses(job)))["members"]


def test_it_says_attempt_and_generation_and_every_members_address(gang: GangBuilder) -> None:
    job = gang.job(("ps", 1, 1), ("worker", 2, 4))
    record = gang.record(gang.replica("worker", 1), gang.replica("worker", 0), gang.replica("ps", 0))

    assert json.loads(membership(record, gang.addresses(job))) == {
        "attempt": 2,
        "generation": 4,
        "members": {"ps": {"0": "ps-0:2222"}, "worker": {"0": "worker-0:2222", "1": "worker-1:2222"}},
    }


def test_on_growth_the_others_hear_of_it_before_it_is_launched(gang: GangBuilder) -> None:
    joined = gang.replica("worker", 1, state=S.PLACED)

    assert list(members(gang, gang.replica("worker", 0), joined)["worker"]) == ["0", "1"]


def test_on_shrink_it_is_a_member_until_its_end_is_confirmed(gang: GangBuilder) -> None:
    leaving = gang.replica("worker", 1, leaving=True)
    gone = gang.replica("worker", 1, leaving=True, state=S.REMOVED, ended_at=1)

    assert list(members(gang, gang.replica("worker", 0), leaving)["worker"]) == ["0", "1"]
    assert list(members(gang, gang.replica("worker", 0), gone)["worker"]) == ["0"]


def test_one_that_ended_by_itself_stays_a_member(gang: GangBuilder) -> None:
    ended = gang.replica("worker", 1, state=S.EXITED, exit_code=1, ended_at=1)

    assert list(members(gang, gang.replica("worker", 0), ended)["worker"]) == ["0", "1"]


def test_replicas_of_earlier_attempts_are_not_in_it(gang: GangBuilder) -> None:
    earlier = gang.replica("worker", 1, attempt=1, leaving=True)

    assert list(members(gang, gang.replica("worker", 0), earlier)["worker"]) == ["0"]


def test_the_same_membership_is_the_same_bytes_in_any_order(gang: GangBuilder) -> None:
    job = gang.job(("worker", 2, 2))
    pair = (gang.replica("worker", 0), gang.replica("worker", 1))

    one, other = (membership(gang.record(*order), gang.addresses(job)) for order in (pair, pair[::-1]))

    assert one == other
