"""Which gangs start, on which nodes and how large, and why others wait."""

from __future__ import annotations

from muster_core.models import Job, Phase, Resources
from muster_core.scheduling import Wait
from muster_formats import parse
from muster_testing.pool import ScenarioPool

CPU_ONLY = Resources(cpu=1000)


def test_five_replicas_go_to_one_node(pool: ScenarioPool) -> None:
    assert pool.where(pool.run(pool.job("a", 4, floor=1, most=4))) == {"n1": {"ps": 1, "worker": 4}}


def test_a_gang_larger_than_a_node_uses_two_nodes(pool: ScenarioPool) -> None:
    where = pool.where(pool.run(pool.job("a", 6, floor=2, most=8)))
    assert where == {"n1": {"ps": 1, "worker": 4}, "n2": {"worker": 2}}


def test_an_elastic_gang_starts_with_the_workers_that_fit(pool: ScenarioPool) -> None:
    where = pool.where(pool.run(pool.job("a", 10, floor=4, most=10)))
    assert where == {"n1": {"ps": 1, "worker": 4}, "n2": {"worker": 4}}


def test_a_gang_short_of_one_gpu_waits_with_that_reason(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 10, floor=9, most=10))
    (wait,) = pool.decide()
    assert isinstance(wait, Wait)
    assert pool.record("a").phase is Phase.QUEUED
    assert pool.record("a").replicas == ()
    assert wait.reason.code == "InsufficientResources"
    assert wait.reason.message.startswith("short of 1 GPU: 8 of 9 needed are free, on 2 nodes")
    assert pool.reason("a") == wait.reason


def test_full_size_on_two_nodes_is_preferred_to_fewer_replicas_on_one(empty: ScenarioPool) -> None:
    empty.add_node("n1", gpu=3)
    empty.add_node("n2", gpu=2)
    assert empty.where(empty.run(empty.job("a", 4))) == {"n1": {"ps": 1, "worker": 3}, "n2": {"worker": 1}}


def test_gpus_used_by_foreign_pods_are_not_free(pool: ScenarioPool) -> None:
    pool.add_node("n1", foreign=Resources(gpu=1000))
    pool.add_node("n2", foreign=Resources(gpu=2000))
    assert pool.where(pool.run(pool.job("a", 4))) == {"n1": {"ps": 1, "worker": 3}, "n2": {"worker": 1}}


def test_a_large_ps_goes_to_the_large_node_and_its_workers_to_the_other(empty: ScenarioPool) -> None:
    empty.add_node("n1", cpu=4, gpu=0)
    empty.add_node("n2", cpu=8, gpu=0)
    where = empty.where(empty.run(empty.job("a", 4, server=Resources(cpu=8000), worker=CPU_ONLY)))
    assert where == {"n2": {"ps": 1}, "n1": {"worker": 4}}


def test_two_servers_share_two_nodes_with_the_workers(empty: ScenarioPool) -> None:
    empty.add_node("n1", cpu=6, gpu=0)
    empty.add_node("n2", cpu=6, gpu=0)
    where = empty.where(
        empty.run(empty.job("a", 4, floor=3, servers=2, server=Resources(cpu=4000), worker=CPU_ONLY))
    )
    assert where == {"n1": {"ps": 1, "worker": 2}, "n2": {"ps": 1, "worker": 2}}


def test_a_job_that_fits_passes_one_that_does_not(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 10, floor=9))
    assert pool.placed() == []
    pool.after(5)
    assert pool.where(pool.run(pool.job("b", 2))) == {"n1": {"ps": 1, "worker": 2}}
    assert pool.record("a").phase is Phase.QUEUED


def test_a_starved_job_that_can_never_start_gets_no_reservation(pool: ScenarioPool) -> None:
    pool.submit(pool.job("a", 10, floor=9))
    assert pool.placed() == []
    pool.after(35)
    assert pool.where(pool.run(pool.job("b", 2))) == {"n1": {"ps": 1, "worker": 2}}
    assert pool.state.reservations == ()


def test_four_half_gpus_go_two_to_each_gpu(empty: ScenarioPool) -> None:
    empty.add_node("n1", gpu=2, gpu_memory=16384 * 2**20)
    job = only(HALVES)
    empty.where(empty.run(job))
    assert [one.gpus for one in empty.record("halves").gang()] == [(0,), (0,), (1,), (1,)]


def test_a_container_limit_counts_as_its_request(empty: ScenarioPool) -> None:
    empty.add_node("n1", cpu=4, gpu=0)
    empty.submit(only(LIMITS))
    (wait,) = empty.decide()
    assert isinstance(wait, Wait)
    assert empty.record("limits").replicas == ()
    assert wait.reason.code == "InsufficientResources"
    assert wait.reason.message == (
        "short of 16 CPU: 4 of 20 needed are free, on 1 node; the empty pool could not hold it either"
    )


def only(document: str) -> Job:
    """Parse a document with one job."""
    parsed = parse(document)
    (job,) = parsed.jobs
    return job


HALVES = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: halves
  annotations: {DRAGON_KUBESHARE: "true"}
spec:
  min-instances: 1
  max-instances: 4
  tfReplicaSpecs:
    Worker:
      replicas: 4
      template:
        metadata:
          annotations:
            kubeshare/gpu_request: "0.5"
            kubeshare/gpu_limit: "1.0"
            kubeshare/gpu_mem: "3189243904"
        spec:
          containers: [{name: tensorflow, image: train}]
"""

LIMITS = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: limits}
spec:
  tfReplicaSpecs:
    PS:
      template: {spec: {containers: [{name: tensorflow, image: train, resources: {limits: {cpu: 4}}}]}}
    Worker:
      replicas: 4
      template: {spec: {containers: [{name: tensorflow, image: train, resources: {limits: {cpu: 4}}}]}}
"""
