"""TF_CONFIG as ``tf.distribute`` reads it, written after the documentation of ``TFConfigClusterResolver`` and
``MultiWorkerMirroredStrategy``, since TensorFlow itself is too large for a test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from muster_core.frameworks import (
    Addresses,
    RuntimeContext,
    environment,
    local_addresses,
    possible_replicas,
    service_addresses,
)
from muster_core.models import Framework, FrameworkOptions, Job, JobRecord, ReplicaRecord, Role, Template


class TFConfigClusterResolver:
    """Answers from TF_CONFIG: the cluster, and the task of this process."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._config: dict[str, Any] = json.loads(environ.get("TF_CONFIG", "{}"))
        self._task: dict[str, Any] = self._config.get("task", {})

    @property
    def task_type(self) -> str | None:
        return self._task.get("type")

    @property
    def task_id(self) -> int | None:
        return int(self._task["index"]) if "index" in self._task else None

    @property
    def environment(self) -> str:
        return str(self._config.get("environment", ""))

    def cluster_spec(self) -> dict[str, dict[int, str]]:
        """Return tasks by job name and index; a job is a list, or a sparse mapping."""
        cluster: dict[str, list[str] | dict[str, str]] = self._config.get("cluster", {})
        return {
            job: {int(i): a for i, a in tasks.items()} if isinstance(tasks, dict) else dict(enumerate(tasks))
            for job, tasks in cluster.items()
        }

    def master(self) -> str:
        """Return the address of this task; empty without a cluster."""
        spec = self.cluster_spec()
        if not spec or self.task_type is None or self.task_id is None:
            return ""
        return f"grpc://{spec[self.task_type][self.task_id]}"

    def validate(self) -> None:
        """Reject what the strategy rejects: a task outside the cluster, an unknown task type, several chiefs."""
        spec = self.cluster_spec()
        allowed = {"chief", "master", "worker", "ps", "evaluator"}
        assert set(spec) <= allowed, f"unknown tasks: {set(spec) - allowed}"
        assert len(spec.get("chief", {})) <= 1
        assert self.task_id is not None
        if self.task_type == "evaluator":
            return
        assert self.task_type in spec, f"{self.task_type} is not in the cluster"
        assert self.task_id in spec[self.task_type]

    def is_chief(self) -> bool:
        """Return the chief, or the first worker."""
        if self.task_type in {"chief", "master"}:
            return True
        has_one = self.cluster_spec().keys() & {"chief", "master"}
        return not has_one and self.task_type == "worker" and self.task_id == 0

    def worker_count(self) -> int:
        """Return the number of training tasks: workers and the chief."""
        return sum(len(self.cluster_spec().get(job, {})) for job in ("chief", "worker"))


def resolvers(
    *roles: tuple[str, int], local: bool, options: FrameworkOptions | None = None
) -> dict[tuple[str, int], TFConfigClusterResolver]:
    """Return what each replica of such a job would read."""
    job = Job(
        name="mnist",
        framework=Framework.TENSORFLOW,
        options=options or FrameworkOptions(),
        roles=tuple(
            Role(name=name, replicas=count, min=count, max=count, template=Template())
            for name, count in roles
        ),
    )
    members = tuple(
        ReplicaRecord(role=role, index=index, attempt=1, generation=1, node="n1")
        for role, index in possible_replicas(job)
    )
    record = JobRecord(job_id="j-1", applied_sequence=1, job=job, attempt=1, generation=1, replicas=members)
    context = RuntimeContext(addresses=addresses(job, local=local), members_path="/m", config_folder="/c")
    return {
        member.key: TFConfigClusterResolver(environment(record, job, member, context=context, traceparent=""))
        for member in members
    }


def addresses(job: Job, *, local: bool) -> Addresses:
    """Return the addresses on this machine, or in a cluster."""
    ports = {key: 21000 + number for number, key in enumerate(possible_replicas(job))}
    return local_addresses("127.0.0.1", ports) if local else service_addresses(job)


@pytest.mark.parametrize("local", [True, False])
def test_every_task_is_in_its_cluster_and_one_is_the_chief(local: bool) -> None:
    found = resolvers(("chief", 1), ("ps", 2), ("worker", 3), ("evaluator", 1), local=local)

    for (role, index), resolver in found.items():
        resolver.validate()
        assert (resolver.task_type, resolver.task_id, resolver.environment) == (role, index, "cloud")
        assert resolver.worker_count() == 4
        assert resolver.is_chief() == (role == "chief")


def test_all_tasks_read_the_same_cluster() -> None:
    found = resolvers(("ps", 1), ("worker", 2), local=False)

    (spec,) = {json.dumps(resolver.cluster_spec()) for resolver in found.values()}
    assert json.loads(spec) == {
        "ps": {"0": "mnist-ps-0.default.svc:2222"},
        "worker": {"0": "mnist-worker-0.default.svc:2222", "1": "mnist-worker-1.default.svc:2222"},
    }
    assert found["worker", 1].master() == "grpc://mnist-worker-1.default.svc:2222"
    assert [key for key, resolver in found.items() if resolver.is_chief()] == [("worker", 0)]


def test_a_sparse_cluster_has_the_tasks_own_index() -> None:
    found = resolvers(("ps", 1), ("worker", 3), local=True, options=FrameworkOptions(sparse_cluster=True))

    worker = found["worker", 2]
    worker.validate()
    assert worker.cluster_spec() == {"ps": {0: "127.0.0.1:21000"}, "worker": {2: "127.0.0.1:21003"}}


def test_a_job_of_one_task_reads_no_cluster() -> None:
    (alone,) = resolvers(("worker", 1), local=True).values()

    assert (alone.cluster_spec(), alone.master()) == ({}, "")
