"""The only place that constructs the gateway's adapters."""

from __future__ import annotations

from muster_bus.service_bus import connect_bus
from muster_gateway.adapters import BusSubmissions
from muster_gateway.commands import Commander
from muster_gateway.defaults import DefaultsServicer
from muster_gateway.explaining import Explainer
from muster_gateway.handlers import ClusterServicer, JobServicer
from muster_gateway.queues import QueueServicer
from muster_gateway.reaching import Doorman
from muster_gateway.settings import GatewaySettings
from muster_gateway.submission import Submitter
from muster_rpc.v1 import (
    cluster_service_pb2_grpc,
    defaults_service_pb2_grpc,
    internal_service_pb2_grpc,
    job_service_pb2_grpc,
    queue_service_pb2_grpc,
)
from muster_service.app import Context
from muster_service.grpc_client import channel


async def build(settings: GatewaySettings, ctx: Context) -> None:
    """Construct the service."""
    bus = await connect_bus(settings, ctx)
    submissions = BusSubmissions(bus)
    specs = internal_service_pb2_grpc.SpecServiceStub(channel(settings.spec_validator_address))
    records = internal_service_pb2_grpc.RecordServiceStub(channel(settings.status_tracker_address))
    pool = internal_service_pb2_grpc.PoolServiceStub(channel(settings.scheduler_address))
    hands = channel(settings.pod_launcher_address)
    logs = internal_service_pb2_grpc.LogServiceStub(hands)
    reach = internal_service_pb2_grpc.ReachServiceStub(hands)
    commander = Commander(records=records, submissions=submissions)
    ctx.add_grpc(
        job_service_pb2_grpc.add_JobServiceServicer_to_server,
        JobServicer(
            submitter=Submitter(
                submissions=submissions, specs=specs, wait_s=settings.validation_wait_seconds
            ),
            commander=commander,
            specs=specs,
            records=records,
            explainer=Explainer(pool=pool),
            logs=logs,
            doorman=Doorman(commander=commander, reach=reach),
        ),
    )
    ctx.add_grpc(
        defaults_service_pb2_grpc.add_DefaultsServiceServicer_to_server, DefaultsServicer(specs=specs)
    )
    ctx.add_grpc(queue_service_pb2_grpc.add_QueueServiceServicer_to_server, QueueServicer(pool=pool))
    ctx.add_grpc(
        cluster_service_pb2_grpc.add_ClusterServiceServicer_to_server,
        ClusterServicer(pool=pool, trace_query_url=settings.trace_query_url),
    )
