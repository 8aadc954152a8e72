"""``muster explain``: the page, and what programs read instead."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import yaml

from muster_rpc.v1 import explanation_pb2, job_pb2

if TYPE_CHECKING:
    from conftest import GatewayDouble, Muster

JOB_ID = "j-aaaaaaaaaaaaaaaa"


def test_the_sentence_comes_first_then_the_tables_then_what_helps(
    muster: Muster, gateway: GatewayDouble
) -> None:
    gateway.explanation = explanation_pb2.Explanation(
        job_id=JOB_ID,
        name="demo",
        phase=job_pb2.PHASE_QUEUED,
        reason=job_pb2.Reason(code="InsufficientResources", message="needs 2 GPUs"),
        queue="research",
        position=9,
        ahead=[f"big{number}" for number in range(7)],
        nodes=1200,
        missing=[explanation_pb2.ResourceShortage(resource="memory", needed=2**31, free=2**30, nodes=12)],
        filtered=[
            explanation_pb2.FilteredNodes(
                constraint=explanation_pb2.CONSTRAINT_TAINT, message="tainted", nodes=1100
            )
        ],
        expected_from="not known: x has no run time estimate",
        remedies=[
            explanation_pb2.Remedy(message=one) for one in ["would start now with 1 more GPU free on n1"]
        ],
    )
    assert muster("explain", "demo").stdout == (
        "demo is Queued: needs 2 GPUs (InsufficientResources)\n"
        "\n"
        "RESOURCE   NEEDED    FREE   SHORT   FREE ON NODES\n"
        "memory      2 GiB   1 GiB   1 GiB      12 of 1200\n"
        "\n"
        "       NODES   EXCLUDED BY   WHY\n"
        "1100 of 1200   Taint         tainted\n"
        "\n"
        "Queue: research, number 9, after big0, big1, big2, big3, big4 and 3 more\n"
        "Expected start: not known: x has no run time estimate\n"
        "\n"
        "What helps:\n"
        "  - would start now with 1 more GPU free on n1\n"
    )


def test_programs_read_all_of_it(muster: Muster, gateway: GatewayDouble) -> None:
    gateway.explanation = explanation_pb2.Explanation(
        job_id=JOB_ID,
        reason=job_pb2.Reason(code="QueueLimit", numbers={"limit.gpu": 3000}),
        feasible_when_empty=False,
        roles=[explanation_pb2.RoleSize(role="worker", size=4, surplus=2)],
    )
    output = json.loads(muster("explain", "demo", "-o", "json").stdout)
    assert output["reason"] == {"code": "QueueLimit", "numbers": {"limit.gpu": "3000"}}
    assert output["feasibleWhenEmpty"] is False
    assert output["roles"] == [{"role": "worker", "size": 4, "surplus": 2}]
    assert yaml.safe_load(muster("explain", "demo", "-o", "yaml").stdout) == output
    assert muster("explain", "demo", "-o", "name").stdout == f"{JOB_ID}\n"


def test_each_number_is_shown_once_and_with_its_unit(muster: Muster, gateway: GatewayDouble) -> None:
    sentence = "short of 13 GPU: 3 of 16 needed are free, on 2 nodes; the empty pool could not hold it either"
    numbers = {
        "needed.gpu": 16_000,
        "free.gpu": 3000,
        "short.gpu": 13_000,
        "short.memory": 3 * 2**29,
        "feasible_when_empty": 0,
        "needed_replicas": 4,
        "placeable_replicas": 1,
        "nodes": 2,
        "filtered.Taint": 1,
    }
    gateway.explanation = explanation_pb2.Explanation(
        name="demo", phase=job_pb2.PHASE_QUEUED, reason=job_pb2.Reason(message=sentence, numbers=numbers)
    )
    assert muster("explain", "demo").stdout == (
        f"demo is Queued: {sentence}\n  1 of the 4 replicas that start together would fit, 1.5 GiB of memory short\n"
    )
    gateway.explanation.missing.add(resource="gpu", needed=16_000, free=3000)
    assert "1.5 GiB of memory short" not in muster("explain", "demo").stdout


def test_a_reservation_shows_its_job_and_its_age(muster: Muster, gateway: GatewayDouble) -> None:
    now = int(time.time())
    expected = explanation_pb2.Explanation(name="demo", phase=job_pb2.PHASE_QUEUED, queue="q", position=1)
    expected.reservation.nodes.extend(f"n{number}" for number in range(9))
    expected.reservation.reserved_at.seconds = now - 125
    expected.blocked_by.name = "whole"
    expected.blocked_by.nodes.append("n1")
    expected.blocked_by.freed = True
    expected.expected_start.seconds = now + 3601
    expected.expected_from = "when r ends, by its active deadline"
    expected.not_before.seconds = now - 5
    gateway.explanation = expected
    text = muster("explain", "demo").stdout
    assert "Reserved for it: n0, n1, n2, n3 and 5 more, for 2m0" in text
    assert "Reserved for whole: n1, which it may preempt" in text
    assert "(in 1h00m), when r ends, by its active deadline" in text


def test_an_explanation_from_the_record_shows_its_time(muster: Muster, gateway: GatewayDouble) -> None:
    expected = explanation_pb2.Explanation(name="demo", phase=job_pb2.PHASE_QUEUED)
    expected.reason.message = "needs 2 GPUs"
    expected.notes.append("the scheduler is unavailable: this is its last explanation")
    expected.recorded_at.seconds = int(time.time()) - 60
    gateway.explanation = expected
    first, note, when = muster("explain", "demo").stdout.splitlines()
    assert first == "demo is Queued: needs 2 GPUs"
    assert note == "  the scheduler is unavailable: this is its last explanation"
    assert when.startswith("  as of ")
    assert when.endswith(" ago")


def test_a_running_job_shows_its_bounds(muster: Muster, gateway: GatewayDouble) -> None:
    gateway.explanation = explanation_pb2.Explanation(
        name="demo",
        phase=job_pb2.PHASE_RUNNING,
        roles=[
            explanation_pb2.RoleSize(role="ps", size=1, min=1, wanted=1, max=1),
            explanation_pb2.RoleSize(role="worker", size=12, min=2, wanted=4, max=16, surplus=10, can_add=2),
        ],
    )
    assert muster("explain", "demo").stdout == (
        "demo is Running\n"
        "\n"
        "ROLE     HAS   MIN   ASKED   MAX   MAY LEAVE   COULD GAIN NOW\n"
        "ps         1     1       1     1           0                0\n"
        "worker    12     2       4    16          10                2\n"
    )
