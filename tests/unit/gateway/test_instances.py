"""Instances are listed in pages, by service and name."""

from __future__ import annotations

from unittest.mock import AsyncMock, create_autospec

import grpc
import pytest

from muster_bus import BusUnavailable
from muster_bus.instance_status import InstanceStatus
from muster_gateway.cluster import ClusterServicer
from muster_gateway.diagnosis import Diagnosis
from muster_rpc.calls import ServerContext
from muster_rpc.v1 import cluster_service_pb2 as pb

INSTANCES = [
    InstanceStatus(
        service=service,
        instance=f"{service}-{number}",
        version="0.1.0",
        started_at_ns=1_000_000_000,
        at_ns=2_000_000_000,
    )
    for service in ("scheduler", "gateway")
    for number in (2, 1)
]


class _AbortedError(Exception):
    pass


def context_of(abort: AsyncMock) -> ServerContext:
    context = create_autospec(grpc.aio.ServicerContext, instance=True)
    context.abort = abort
    return context


def servicer_of(list_instances: AsyncMock) -> ClusterServicer:
    diagnosis = create_autospec(Diagnosis, instance=True)
    diagnosis.instances = list_instances
    return ClusterServicer(pool=AsyncMock(), trace_query_url="", diagnosis=diagnosis)


async def test_pages_follow_each_other_without_gaps() -> None:
    servicer = servicer_of(AsyncMock(return_value=INSTANCES))
    names: list[str] = []
    token = ""
    while True:
        request = pb.ListInstancesRequest(page_size=3, page_token=token)
        page = await servicer.ListInstances(request, context_of(AsyncMock()))
        names += [one.name for one in page.instances]
        token = page.next_page_token
        if not token:
            break
    assert names == ["gateway-1", "gateway-2", "scheduler-1", "scheduler-2"]
    assert page.instances[0].started_at.ToMicroseconds() == 1_000_000


async def test_an_unavailable_bus_is_reported() -> None:
    abort = AsyncMock(side_effect=_AbortedError)
    servicer = servicer_of(AsyncMock(side_effect=BusUnavailable("no answer")))
    with pytest.raises(_AbortedError):
        await servicer.ListInstances(pb.ListInstancesRequest(), context_of(abort))
    abort.assert_awaited_once_with(grpc.StatusCode.UNAVAILABLE, "the bus is unavailable; try again")
