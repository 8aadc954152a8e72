"""Addresses of replicas in a cluster and on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core.frameworks import local_addresses, port_of, service_addresses
from muster_core.models import Framework, Port, Template

if TYPE_CHECKING:
    from .conftest import GangBuilder


def test_the_address_in_a_cluster_is_the_service_of_the_replica(gang: GangBuilder) -> None:
    job = gang.job(("ps", 1, 1), ("worker", 1, 2), namespace="vision")

    assert service_addresses(job) == {
        ("ps", 0): "demo-ps-0.vision.svc:2222",
        ("worker", 0): "demo-worker-0.vision.svc:2222",
        ("worker", 1): "demo-worker-1.vision.svc:2222",
    }
    assert service_addresses(job, cluster_domain="cluster.local")["ps", 0] == (
        "demo-ps-0.vision.svc.cluster.local:2222"
    )


def test_the_address_on_one_machine_is_a_port_of_the_replica() -> None:
    assert local_addresses("127.0.0.1", {("ps", 0): 21000, ("worker", 0): 21001}) == {
        ("ps", 0): "127.0.0.1:21000",
        ("worker", 0): "127.0.0.1:21001",
    }


PORTS = [
    (Framework.PLAIN, 2222),
    (Framework.TENSORFLOW, 2222),
    (Framework.PYTORCH, 23456),
    (Framework.MPI, 2222),
    (Framework.HOROVOD, 2222),
    (Framework.XGBOOST, 9999),
    (Framework.PADDLE, 36543),
    (Framework.JAX, 6666),
    (Framework.MXNET, 9091),
]


def test_the_port_table_covers_every_framework() -> None:
    assert [framework for framework, _ in PORTS] == list(Framework)


@pytest.mark.parametrize(("framework", "port"), PORTS)
def test_a_framework_has_a_default_port(gang: GangBuilder, framework: Framework, port: int) -> None:
    assert port_of(gang.job(("worker", 1, 1), framework=framework), "worker", 0) == port


@pytest.mark.parametrize(
    ("framework", "port"), [(Framework.TENSORFLOW, 7001), (Framework.JAX, 6666), (Framework.PLAIN, 7000)]
)
def test_a_template_overrides_the_default_port(gang: GangBuilder, framework: Framework, port: int) -> None:
    job = gang.job(("worker", 1, 1), framework=framework)
    ports = (Port(name="debug", number=7000), Port(name="tfjob-port", number=7001))
    role = msgspec.structs.replace(job.roles[0], template=Template(ports=ports))

    assert port_of(msgspec.structs.replace(job, roles=(role,)), "worker", 0) == port


def test_an_unknown_role_has_no_port(gang: GangBuilder) -> None:
    with pytest.raises(LookupError, match="demo has no role chief"):
        port_of(gang.job(("worker", 1, 1)), "chief", 0)
