"""The membership file: a scale-up writes it first, a scale-down last."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from muster_core.frameworks import membership
from muster_core.models import ReplicaRecord, ReplicaState

if TYPE_CHECKING:
    from .conftest import GangBuilder

S = ReplicaState


def members(gang: GangBuilder, *replicas: ReplicaRecord) -> dict[str, dict[str, str]]:
    """Return the addresses by role and index."""
    job = gang.job(("ps", 1, 1), ("worker", 2, 4))
    return json.loads(membership(gang.record(*replicas), gang.addresses(job)))["members"]


def test_the_file_has_attempt_generation_and_addresses(gang: GangBuilder) -> None:
    job = gang.job(("ps", 1, 1), ("worker", 2, 4))
    record = gang.record(gang.replica("worker", 1), gang.replica("worker", 0), gang.replica("ps", 0))

    assert json.loads(membership(record, gang.addresses(job))) == {
        "attempt": 2,
        "generation": 4,
        "members": {"ps": {"0": "ps-0:2222"}, "worker": {"0": "worker-0:2222", "1": "worker-1:2222"}},
    }


def test_an_added_replica_is_listed_before_its_launch(gang: GangBuilder) -> None:
    joined = gang.replica("worker", 1, state=S.PLACED)

    assert list(members(gang, gang.replica("worker", 0), joined)["worker"]) == ["0", "1"]


def test_a_removed_replica_is_listed_until_its_end_is_confirmed(gang: GangBuilder) -> None:
    terminating = gang.replica("worker", 1, terminating=True)
    gone = gang.replica("worker", 1, terminating=True, state=S.REMOVED, ended_at=1)

    assert list(members(gang, gang.replica("worker", 0), terminating)["worker"]) == ["0", "1"]
    assert list(members(gang, gang.replica("worker", 0), gone)["worker"]) == ["0"]


def test_a_replica_that_exited_stays_listed(gang: GangBuilder) -> None:
    ended = gang.replica("worker", 1, state=S.EXITED, exit_code=1, ended_at=1)

    assert list(members(gang, gang.replica("worker", 0), ended)["worker"]) == ["0", "1"]


def test_replicas_of_earlier_attempts_are_not_listed(gang: GangBuilder) -> None:
    earlier = gang.replica("worker", 1, attempt=1, terminating=True)

    assert list(members(gang, gang.replica("worker", 0), earlier)["worker"]) == ["0"]


def test_the_file_does_not_depend_on_the_order_of_replicas(gang: GangBuilder) -> None:
    job = gang.job(("worker", 2, 2))
    pair = (gang.replica("worker", 0), gang.replica("worker", 1))

    one, other = (membership(gang.record(*order), gang.addresses(job)) for order in (pair, pair[::-1]))

    assert one == other
