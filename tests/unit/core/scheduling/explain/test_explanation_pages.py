"""For every code a job waits with: from events to the page that ``muster explain`` prints."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from muster._cli.explanation import print_explanation
from muster_core import events
from muster_core.models import (
    JobKind,
    QueuePolicy,
    QueueSpec,
    Reason,
    ReplicaState,
    ResourceLimits,
    RestartScope,
    RunPolicy,
    Taint,
)
from muster_rpc.convert.pool import explanation_to_proto
from muster_testing.pool import ScenarioPool

PAGES = Path(__file__).resolve().parents[4] / "golden/explain"
Scenario = Callable[[ScenarioPool], str]
SCENARIOS: dict[str, Scenario] = {}


def scenario(code: str) -> Callable[[Scenario], Scenario]:
    """Register the scenario of a code; it returns the job to explain."""

    def register(made: Scenario) -> Scenario:
        SCENARIOS[code] = made
        return made

    return register


@scenario("InsufficientResources")
def _(pool: ScenarioPool) -> str:
    pool.add_node("n3", taints=(Taint(key="reserved"),))
    pool.run(pool.job("train", 6, floor=2))
    for name in ("first", "second"):
        pool.submit(pool.rigid(name, 8))
        pool.after(20)
    return pool.submit(pool.job("big", 5, floor=4))


@scenario("NoMatchingNode")
def _(pool: ScenarioPool) -> str:
    pool.add_node("n3", unschedulable=True, labels={"disk": "ssd"})
    job = pool.rigid("picky", 2)
    role = job.roles[0]
    template = msgspec.structs.replace(role.template, node_selector={"disk": "ssd"})
    return pool.submit(
        msgspec.structs.replace(job, roles=(msgspec.structs.replace(role, template=template),))
    )


@scenario("QueueLimit")
def _(pool: ScenarioPool) -> str:
    pool.queues(QueueSpec(name="research", limit=ResourceLimits(gpu=3000)))
    pool.run(pool.job("x", 2, queue="research"))
    return pool.submit(pool.job("y", 2, floor=2, queue="research"))


def reserve_all(pool: ScenarioPool) -> None:
    """Reserve both nodes for the job ``whole``, behind a job that runs."""
    pool.run(pool.rigid("running", 4, run=RunPolicy(active_deadline_s=600)))
    pool.submit(pool.rigid("whole", 8))
    pool.decide()
    pool.after(30)
    pool.decide()
    pool.after(45)


@scenario("BehindReservation")
def _(pool: ScenarioPool) -> str:
    reserve_all(pool)
    return pool.submit(pool.rigid("small", 1))


@scenario("Reserved")
def _(pool: ScenarioPool) -> str:
    reserve_all(pool)
    return "whole"


@scenario("BehindFirst")
def _(pool: ScenarioPool) -> str:
    pool.queues(QueueSpec(name="strict", policy=QueuePolicy.STRICT_FIFO))
    pool.run(pool.rigid("x", 4, queue="strict"))
    pool.submit(pool.rigid("first", 5, queue="strict"))
    pool.after(1)
    return pool.submit(pool.rigid("small", 1, queue="strict"))


@scenario("NoSuchQueue")
def _(pool: ScenarioPool) -> str:
    pool.queues(QueueSpec(name="research"))
    return pool.submit(pool.rigid("lost", 1, queue="reserch"))


@scenario("NameInUse")
def _(pool: ScenarioPool) -> str:
    pool.run(pool.rigid("train", 1))
    return pool.submit(pool.rigid("train", 1), job_id="j-second")


@scenario("Suspended")
def _(pool: ScenarioPool) -> str:
    return pool.submit(pool.rigid("later", 1, run=RunPolicy(suspend=True)))


@scenario("WaitingForBuild")
def _(pool: ScenarioPool) -> str:
    pool.submit(pool.rigid("image", 9, kind=JobKind.BUILD))
    pool.decide()
    return pool.submit(pool.rigid("train", 1), built_by="image")


@scenario("BuildFailed")
def _(pool: ScenarioPool) -> str:
    pool.run(pool.rigid("image", 1, kind=JobKind.BUILD))
    pool.submit(pool.rigid("train", 1), built_by="image")
    pool.finish("image", events.Outcome.FAILED, message="image-worker-0 exited with 2")
    return "train"


@scenario("Submitted")
def _(pool: ScenarioPool) -> str:
    pool.publish("j-new", events.JobSubmitted(job_id="j-new", request_id="new"))
    return "j-new"


@scenario("Evicted")
def _(pool: ScenarioPool) -> str:
    pool.queues(QueueSpec(name="shared", preempts_within=True))
    pool.run(pool.rigid("low", 8, queue="shared"))
    pool.submit(pool.rigid("high", 8, queue="shared", priority=5))
    return "low"


@scenario("Restarting")
def _(pool: ScenarioPool) -> str:
    pool.run(pool.rigid("flaky", 2))
    reason = Reason(code="ReplicaFailed", message="worker-1 exited with 1; the gang is restarted")
    pool.publish(
        "flaky", events.JobRestarting(scope=RestartScope.GANG, attempt=1, reason=reason, delay_ms=20_000)
    )
    pool.report("flaky", ReplicaState.EXITED, exit_code=1)
    return "flaky"


@scenario("Running")
def _(pool: ScenarioPool) -> str:
    return pool.run(pool.job("elastic", 4, floor=2, most=6))


@pytest.fixture
def page(pool: ScenarioPool, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Print the page of a scenario."""

    def print_page(code: str) -> str:
        job_id = SCENARIOS[code](pool)
        pool.decide()
        explanation = pool.state.explain(job_id)
        assert explanation is not None
        message = explanation_to_proto(explanation, name_of=lambda other: pool.record(other).name or other)
        out = io.StringIO()
        console = Console(file=out, width=10_000, highlight=False, markup=False, emoji=False)
        with monkeypatch.context() as utc:
            utc.setenv("TZ", "UTC")
            time.tzset()
            print_explanation(console, message, pool.now / 1e6)
        time.tzset()
        return out.getvalue()

    return print_page


@pytest.mark.parametrize("code", SCENARIOS)
def test_the_page_equals_its_golden_file(page: Callable[[str], str], code: str) -> None:
    assert page(code) == (PAGES / f"{code}.txt").read_text()


def test_every_documented_code_has_a_golden_page() -> None:
    documented = (PAGES.parents[2] / "docs/queues.md").read_text().partition("## Why a job waits")[2]
    rows = [line.split("|")[1] for line in documented.splitlines() if line.startswith("| `")]
    codes = {code.strip(" `") for row in rows for code in row.split(",")}
    assert codes <= set(SCENARIOS)
