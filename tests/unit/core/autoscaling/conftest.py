"""A pool with a scaler: it plans after every change, and its proposals go into the stream."""

from __future__ import annotations

import msgspec
import pytest

from muster_core import events
from muster_core.autoscaling import ElasticSettings, ScaleProposal, next_check, plan
from muster_core.models import Job, ReplicaState, Throughput
from muster_core.scheduling import Instruction
from muster_testing.pool import SECOND, ScenarioPool


class ScaledPool(ScenarioPool):
    """A pool with a scaler that has ``settings``."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = ElasticSettings()

    def run_on(self, job: Job, *nodes: str) -> None:
        """Run a job with its workers on ``nodes``, one each, and its parameter servers on the first of them."""
        self.submit(job)
        placed = [
            events.Assignment(role=role.name, index=index, node=nodes[0])
            for role in job.roles
            if role.name != "worker"
            for index in range(role.replicas)
        ]
        for index, node in enumerate(nodes):
            used = sum(
                len(one.gpus) for record in self.records() for one in record.gang() if one.node == node
            )
            first = used + sum(len(one.gpus) for one in placed if one.node == node)
            gpus = job.roles[-1].template.requests.gpu // 1000
            placed.append(
                events.Assignment(
                    role="worker", index=index, node=node, gpus=tuple(range(first, first + gpus))
                )
            )
        self.publish(job.name, events.JobPlaced(attempt=1, generation=1, pool="here", replicas=tuple(placed)))
        self.launch()

    def plan(self) -> list[ScaleProposal]:
        """Return the proposals; planning twice gives the same."""
        proposals = plan(self.state, self.now, self.settings)
        assert plan(self.state, self.now, self.settings) == proposals
        return proposals

    def next_check(self) -> float | None:
        """Return in how many seconds a plan without any event may propose more, or None."""
        at = next_check(self.state, self.now, self.settings)
        return None if at is None else (at - self.now) / SECOND

    def removals(self) -> dict[str, list[int]]:
        """Return the indices that the proposals remove, by job id."""
        return {one.job_id: [ref.index for ref in one.event.removed] for one in self.plan()}

    def propose(self) -> list[ScaleProposal]:
        """Plan, and publish the proposals."""
        proposals = self.plan()
        for one in proposals:
            assert self.publish(one.job_id, one.event) is None
        return proposals

    def advance(self, seconds: float, *, stops: bool = True) -> list[Instruction]:
        """Let time pass with the scheduler and the scaler; without ``stops`` terminating replicas do not end."""
        done: list[Instruction] = []
        until = self.now + int(seconds * SECOND)
        while True:
            done += self._settle(stops=stops)
            check_at = next_check(self.state, self.now, self.settings)
            times = [self.state.next_wake(self.now), check_at, until]
            at = min(at for at in times if at is not None and at >= min(self.now + 1, until))
            if self.now == until:
                return done
            self.now = at

    def _settle(self, *, stops: bool) -> list[Instruction]:
        done: list[Instruction] = []
        for _ in range(100):
            length = len(self.stream)
            done += self.decide()
            self.launch()
            if stops:
                self.confirm_ends()
            if len(self.stream) == length and not self.propose():
                return done
        raise AssertionError(f"the pool does not settle: {done[-8:]}")

    def measure(self, job_id: str, **steps: int) -> None:
        """Record the speed of a job by size in steps a minute: ``n2=100``."""
        throughput = tuple(
            Throughput(workers=int(size.removeprefix("n")), steps=number, micros=60 * SECOND)
            for size, number in steps.items()
        )
        self.state.restore([msgspec.structs.replace(self.record(job_id), throughput=throughput)])

    def exit(self, job_id: str, *indices: int) -> None:
        """Report workers as exited."""
        self.report(job_id, ReplicaState.EXITED, *(("worker", index) for index in indices), exit_code=0)

    def workers(self, job_id: str) -> dict[str, int]:
        """Return the number of workers by node."""
        return {node: roles["worker"] for node, roles in self.where(job_id).items() if roles.get("worker")}

    def size(self, job_id: str) -> int:
        """Return the number of workers."""
        return len(self.indices(job_id))


@pytest.fixture
def empty() -> ScaledPool:
    """A pool without nodes."""
    return ScaledPool()


@pytest.fixture
def pool(empty: ScaledPool) -> ScaledPool:
    """A pool of n1 and n2, with 16 CPU and 4 GPU each."""
    empty.add_node("n1")
    empty.add_node("n2")
    return empty
