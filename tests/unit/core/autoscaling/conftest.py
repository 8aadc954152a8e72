"""A pool with a scaler beside it: it looks whenever anything has changed, and what it proposes goes into the stream."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from muster_core import events
from muster_core.autoscaling import ElasticSettings, ScaleProposal, next_check, plan
from muster_core.models import Job, Node, ReplicaState, Resources, Role, Template, Throughput
from muster_core.scheduling import Instruction, Resize
from muster_testing.pool import SECOND, VirtualPool

CPU = Resources(cpu=1000)
WORKER = Resources(cpu=1000, gpu=1000)


class ScaledPool(VirtualPool):
    """``settings`` are the platform's. Nodes and jobs are told in whole CPUs and GPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = ElasticSettings()

    def offer(self, name: str, *, cpu: int = 16, gpu: int = 4, **rest: object) -> None:
        """A node has so many CPUs and GPUs."""
        node = Node(name=name, allocatable=Resources(cpu=cpu * 1000, gpu=gpu * 1000))
        self.node(msgspec.structs.replace(node, **rest))

    def job(
        self,
        name: str,
        workers: int,
        *,
        floor: int = 1,
        most: int = 0,
        worker: Resources = WORKER,
        servers: int = 1,
        selector: Mapping[str, str] | None = None,
        **rest: object,
    ) -> Job:
        """``servers`` parameter servers of 1 CPU and W ``workers``, ``floor`` to ``most`` (W unless said)."""
        template = Template(requests=worker, node_selector=dict(selector or {}))
        roles = [
            Role(name="worker", replicas=workers, min=floor, max=max(most, workers), template=template),
        ]
        if servers:
            ps = Role(name="ps", replicas=servers, min=servers, max=servers, template=Template(requests=CPU))
            roles.insert(0, ps)
        return msgspec.structs.replace(Job(name=name, roles=tuple(roles)), **rest)

    def start(self, job: Job, *, size: int | None = None) -> Mapping[str, Mapping[str, int]]:
        """A job arrives and runs at once; its replicas by node."""
        self.submit(job)
        assert job.name in self.placed()
        self.launch()
        if size is not None:
            assert self.size(job.name) == size
        return self.where(job.name)

    def run_on(self, job: Job, *nodes: str, role: str = "worker") -> None:
        """A job runs with its workers on these nodes, one each, and its ps on the first of them."""
        self.submit(job)
        used: dict[str, int] = {}

        def gpus(node: str, count: int) -> tuple[int, ...]:
            taken = used.setdefault(node, self._gpus_in_use(node))
            used[node] = taken + count
            return tuple(range(taken, taken + count))

        wanted = {one.name: one.template.requests.gpu // 1000 for one in job.roles}
        placed = [
            events.Assignment(role=one.name, index=index, node=nodes[0])
            for one in job.roles
            if one.name != role
            for index in range(one.replicas)
        ]
        placed += [
            events.Assignment(role=role, index=index, node=node, gpus=gpus(node, wanted[role]))
            for index, node in enumerate(nodes)
        ]
        self.publish(job.name, events.JobPlaced(attempt=1, generation=1, pool="here", replicas=tuple(placed)))
        self.launch()

    def _gpus_in_use(self, node: str) -> int:
        return sum(
            len(one.gpus)
            for record in self.records()
            for one in record.replicas
            if one.node == node and not one.ended
        )

    def look(self) -> list[ScaleProposal]:
        """What would be proposed now; twice the same."""
        proposals = plan(self.state, self.now, self.settings)
        assert plan(self.state, self.now, self.settings) == proposals
        return proposals

    def next_look(self) -> float | None:
        """In how many seconds a look without any event may show more, or None."""
        at = next_check(self.state, self.now, self.settings)
        return None if at is None else (at - self.now) / SECOND

    def propose(self) -> list[ScaleProposal]:
        """Look and propose."""
        proposals = self.look()
        for one in proposals:
            assert self.publish(one.job_id, one.event) is None
        return proposals

    def scale(self) -> list[Resize]:
        """Propose and decide; how sizes change."""
        self.propose()
        return [one for one in self.decide() if isinstance(one, Resize)]

    def live(self, seconds: float, *, stops: bool = True) -> list[Instruction]:
        """Time passes with everybody at work, looking again whenever there may be more to see; all that was decided."""
        done: list[Instruction] = []
        until = self.now + int(seconds * SECOND)
        while True:
            done += self._come_to_rest(stops=stops)
            instants = [
                self.state.next_wake(self.now),
                next_check(self.state, self.now, self.settings),
                until,
            ]
            at = min(at for at in instants if at is not None and at >= min(self.now + 1, until))
            if self.now == until:
                return done
            self.now = at

    def _come_to_rest(self, *, stops: bool) -> list[Instruction]:
        done: list[Instruction] = []
        for _ in range(100):
            said = len(self.stream)
            done += self.decide()
            self.launch()
            if stops:
                self.confirm_ends()
            if len(self.stream) == said and not self.propose():
                return done
        raise AssertionError(f"the pool does not come to rest: {done[-8:]}")

    def measure(self, job_id: str, throughput: tuple[Throughput, ...]) -> None:
        """The job was so fast at these sizes."""
        self.state.restore([msgspec.structs.replace(self.record(job_id), throughput=throughput)])

    def leave(self, job_id: str, *keys: tuple[str, int]) -> None:
        """Those replicas have gone."""
        leavers = [one for one in self.record(job_id).replicas if one.key in keys and not one.ended]
        self.change(job_id, ReplicaState.EXITED, leavers, exit_code=0)

    def workers(self, job_id: str) -> dict[str, int]:
        """The number of workers by node."""
        return {node: roles["worker"] for node, roles in self.where(job_id).items() if roles.get("worker")}

    def indices(self, job_id: str) -> list[int]:
        """The workers' indices."""
        return sorted(one.index for one in self.record(job_id).gang() if one.role == "worker")

    def size(self, job_id: str) -> int:
        """How many workers there are."""
        return len(self.indices(job_id))


@pytest.fixture
def empty() -> ScaledPool:
    """A pool without nodes."""
    return ScaledPool()


@pytest.fixture
def pool(empty: ScaledPool) -> ScaledPool:
    """n1 and n2, 16 CPUs and 4 GPUs each."""
    empty.offer("n1")
    empty.offer("n2")
    return empty
