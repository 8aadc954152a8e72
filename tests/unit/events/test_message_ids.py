"""Message ids: the same step has the same id, so that a retry is filtered; another step has another, so that none is lost."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest

from muster_core import events
from muster_core.events import ReplicaChange, ReplicaRef
from muster_core.models import Job, Reason, ReplicaState, Resources, RestartScope
from muster_events.codec import job_message, pool_message

JOB_ID = "j-abcdefghijklmnop"
WHY = Reason(code="Why")
OTHER = Reason(code="Other")


def _placed(attempt: int) -> events.JobPlaced:
    return events.JobPlaced(attempt=attempt, generation=1, pool="local", replicas=())


def _proposed(
    role: str = "worker", target: int = 3, attempt: int = 1, generation: int = 1
) -> events.ScaleProposed:
    return events.ScaleProposed(
        role=role, size=2, target=target, policy="p", attempt=attempt, generation=generation, reason=WHY
    )


def _seen(state: ReplicaState, restart: int = 0, at: int = 1) -> events.ReplicasChanged:
    change = ReplicaChange(role="worker", index=0, attempt=1, state=state, restart=restart, at=at)
    return events.ReplicasChanged(changes=(change,))


def _restarting(*indices: int, attempt: int = 1) -> events.JobRestarting:
    refs = tuple(ReplicaRef(role="worker", index=index) for index in indices)
    scope = RestartScope.REPLICA if refs else RestartScope.GANG
    return events.JobRestarting(scope=scope, attempt=attempt, reason=WHY, replicas=refs)


def _command(request_id: str) -> events.CommandRequested:
    return events.CommandRequested(command=events.Command.SCALE, request_id=request_id)


STEPS: tuple[tuple[events.JobEvent, int], ...] = (
    (events.JobSubmitted(job_id=JOB_ID, request_id="r"), 0),
    (events.JobValidated(job=Job(name="demo", roles=())), 0),
    (events.JobWaiting(reason=WHY), 5),
    (events.JobWaiting(reason=WHY), 6),
    (_placed(1), 6),
    (_placed(2), 6),
    (events.JobResized(attempt=1, generation=2, reason=WHY), 7),
    (events.JobResized(attempt=1, generation=3, reason=WHY), 7),
    (events.JobResized(attempt=2, generation=2, reason=WHY), 7),
    (events.JobEvicted(attempt=1, reason=WHY), 8),
    (events.JobEvicted(attempt=2, reason=WHY), 8),
    (_proposed(), 9),
    (_proposed(), 10),
    (_proposed(role="ps"), 9),
    (_proposed(target=4), 9),
    (_proposed(attempt=2), 9),
    (_proposed(generation=2), 9),
    (msgspec.structs.replace(_proposed(), beneficiary="j-2345672345672345"), 9),
    (events.ProgressReported(role="worker", index=0, attempt=1, step=7, at=1), 0),
    (events.ProgressReported(role="worker", index=0, attempt=1, step=7, at=2), 0),
    (events.ProgressReported(role="worker", index=0, attempt=1, step=8, at=1), 0),
    (events.ProgressReported(role="worker", index=0, attempt=2, step=7, at=1), 0),
    (events.ProgressReported(role="worker", index=1, attempt=1, step=7, at=1), 0),
    (_seen(ReplicaState.LAUNCHED), 0),
    (_seen(ReplicaState.RUNNING), 0),
    (_seen(ReplicaState.RUNNING, restart=1), 0),
    (_seen(ReplicaState.RUNNING, at=2), 0),
    (_command("a"), 0),
    (_command("b"), 0),
    (_restarting(), 1),
    (_restarting(attempt=2), 1),
    (_restarting(1), 1),
    (_restarting(1), 2),
    (_restarting(1, 2), 1),
    (_restarting(1, attempt=2), 1),
    (events.JobFinished(outcome=events.Outcome.FAILED, reason=WHY), 3),
)


def id_of(event: events.JobEvent, after: int, job_id: str = JOB_ID) -> str:
    """The message id of a step."""
    return job_message(job_id, event, source="test", after=after).msg_id


def test_distinct_steps_have_distinct_ids() -> None:
    same = [(one, other) for one, other in combinations(STEPS, 2) if id_of(*one) == id_of(*other)]

    assert same == []


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step[0]).__name__)
def test_a_repeated_step_has_the_same_id(step: tuple[events.JobEvent, int]) -> None:
    event, after = step
    again = msgspec.json.decode(msgspec.json.encode(event), type=events.JobEvent)

    assert id_of(again, after) == id_of(event, after)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step[0]).__name__)
def test_the_same_step_of_another_job_has_another_id(step: tuple[events.JobEvent, int]) -> None:
    assert id_of(*step) != id_of(*step, job_id="j-ponmlkjihgfedcba")


def test_a_job_has_one_result_and_one_end() -> None:
    results = (events.JobValidated(job=Job(name="demo", roles=())), events.JobRejected(problems=()))
    ends = [events.JobFinished(outcome=outcome, reason=WHY) for outcome in events.Outcome]

    assert len({id_of(result, 0) for result in results}) == 1
    assert len({id_of(end, after) for after, end in enumerate(ends)}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (events.JobEvicted(attempt=1, reason=WHY), events.JobEvicted(attempt=1, reason=OTHER)),
        (_placed(1), events.JobPlaced(attempt=1, generation=1, pool="local", replicas=(), reason=OTHER)),
    ],
)
def test_a_decision_is_stored_once_whatever_its_message(one: events.JobEvent, other: events.JobEvent) -> None:
    assert id_of(one, 1) == id_of(other, 1)


@pytest.mark.parametrize(
    "decision",
    [
        _placed(1),
        events.JobResized(attempt=1, generation=2, reason=WHY),
        events.JobEvicted(attempt=1, reason=WHY),
    ],
    ids=lambda decision: type(decision).__name__,
)
def test_a_decision_that_another_event_overtook_can_be_made_again(decision: events.JobEvent) -> None:
    """A job that is suspended before its placement is stored is placed again, with the same attempt, when it is resumed."""
    assert id_of(decision, 1) != id_of(decision, 2)


def test_a_repeated_pool_event_after_another_one_is_no_duplicate() -> None:
    """Free, taken and free again within the duplicate window: the last must not be dropped for the first."""
    free = events.CapacityChanged(
        pool="local", free=Resources(cpu=1), allocatable=Resources(cpu=1), waiting=0
    )

    message = pool_message(free, source="scheduler")

    assert message.msg_id == ""
    assert message.headers["ce-id"].startswith("local/CapacityChanged/")
