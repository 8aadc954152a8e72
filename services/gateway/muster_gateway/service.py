"""Construction of the gateway."""

from __future__ import annotations

from functools import partial

from muster_bus.service_bus import connect_bus, keep_catalogue, probe_writes
from muster_events.catalogue import GATEWAY, JOBS_STREAM, probes_of
from muster_events.subjects import UNSTORED
from muster_gateway.bus import BusSubmissions
from muster_gateway.cluster import ClusterServicer, DefaultsServicer, QueueServicer
from muster_gateway.diagnosis import Diagnosis
from muster_gateway.explanations import Explainer
from muster_gateway.jobs import Jobs, JobServicer
from muster_gateway.orphans import OrphanServicer
from muster_gateway.replicas import ReplicaStreams
from muster_gateway.settings import GatewaySettings
from muster_gateway.submissions import Submitter
from muster_rpc.calls import LEADER_QUERIES, RECORD_QUERIES
from muster_rpc.internal.v1 import queries_pb2_grpc
from muster_rpc.v1 import (
    cluster_service_pb2_grpc,
    defaults_service_pb2_grpc,
    job_service_pb2_grpc,
    orphan_service_pb2_grpc,
    queue_service_pb2_grpc,
)
from muster_service.app import Context
from muster_service.grpc_client import channel
from muster_service.version import VERSION


async def build(settings: GatewaySettings, ctx: Context) -> None:
    """Construct the service."""
    bus = await connect_bus(settings, ctx)
    probe = probe_writes(bus, ctx, settings, subjects=probes_of(GATEWAY), hint=UNSTORED)
    keep_catalogue(bus, ctx, streams=[JOBS_STREAM])
    submissions = BusSubmissions(bus, probe=probe)
    connect = partial(channel, telemetry=ctx.telemetry)
    specs = queries_pb2_grpc.SpecServiceStub(connect(settings.spec_validator_address))
    records = queries_pb2_grpc.RecordServiceStub(
        connect(settings.status_tracker_address, queries=RECORD_QUERIES)
    )
    pool = queries_pb2_grpc.PoolServiceStub(
        connect(settings.scheduler_address, queries=LEADER_QUERIES, called_once=["ApplyPoolQueues"])
    )
    launcher = connect(settings.pod_launcher_address)
    replicas = queries_pb2_grpc.ReplicaServiceStub(launcher)
    held_jobs = queries_pb2_grpc.HeldJobServiceStub(launcher)
    jobs = Jobs(records=records, submissions=submissions)
    ctx.add_grpc(
        job_service_pb2_grpc.add_JobServiceServicer_to_server,
        JobServicer(
            submitter=Submitter(
                submissions=submissions, specs=specs, wait_s=settings.validation_wait_seconds
            ),
            jobs=jobs,
            specs=specs,
            records=records,
            explainer=Explainer(pool=pool),
            replicas=replicas,
            access=ReplicaStreams(job_of=jobs.get, replicas=replicas),
        ),
    )
    ctx.add_grpc(
        defaults_service_pb2_grpc.add_DefaultsServiceServicer_to_server,
        DefaultsServicer(specs=specs, shortage=probe.shortage),
    )
    ctx.add_grpc(
        queue_service_pb2_grpc.add_QueueServiceServicer_to_server,
        QueueServicer(pool=pool, shortage=probe.shortage),
    )
    ctx.add_grpc(
        cluster_service_pb2_grpc.add_ClusterServiceServicer_to_server,
        ClusterServicer(
            pool=pool,
            trace_query_url=settings.trace_query_url,
            diagnosis=Diagnosis(
                bus=bus,
                runtimes=queries_pb2_grpc.RuntimeServiceStub(launcher),
                monitor_urls=[url for part in settings.bus_monitor_url.split(",") if (url := part.strip())],
                version=VERSION,
            ),
        ),
    )
    ctx.add_grpc(
        orphan_service_pb2_grpc.add_OrphanServiceServicer_to_server, OrphanServicer(held_jobs=held_jobs)
    )
