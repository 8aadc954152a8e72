"""What a job's framework is told, what a build makes, and the defaults that were applied, on the wire."""

from __future__ import annotations

from muster_core.models import AppliedDefaults, Build, Category, Convention, FrameworkOptions, Rendezvous
from muster_rpc.convert.enums import CATEGORIES, CONVENTIONS
from muster_rpc.convert.findings import Findings
from muster_rpc.convert.structs import struct_from_proto, struct_to_proto
from muster_rpc.v1 import job_pb2

_BACKEND = Rendezvous().backend


def category_to_proto(category: Category | None) -> job_pb2.Category.ValueType:
    """The category's number; 0 where there is none."""
    return CATEGORIES.to_proto(category) if category else job_pb2.CATEGORY_UNSPECIFIED


def options_to_proto(options: FrameworkOptions) -> job_pb2.FrameworkOptions:
    """The options as a message."""
    return job_pb2.FrameworkOptions(
        processes=options.processes,
        rendezvous=_rendezvous_to_proto(options.rendezvous) if options.rendezvous else None,
        sparse_cluster=options.sparse_cluster,
        evaluator_in_cluster=options.evaluator_in_cluster,
        model_dir=options.model_dir,
        conventions=[CONVENTIONS.to_proto(convention) for convention in options.conventions],
        parameters=struct_to_proto(options.parameters),
    )


def options_from_proto(message: job_pb2.FrameworkOptions, findings: Findings) -> FrameworkOptions:
    """The options of a message."""
    rendezvous = _rendezvous_from_proto(message.rendezvous) if message.HasField("rendezvous") else None
    return FrameworkOptions(
        processes=message.processes,
        rendezvous=rendezvous,
        sparse_cluster=message.sparse_cluster,
        evaluator_in_cluster=message.evaluator_in_cluster,
        model_dir=message.model_dir,
        conventions=_conventions(message, findings),
        parameters=struct_from_proto(message.parameters, findings, "options.parameters"),
    )


def build_to_proto(build: Build | None) -> job_pb2.Build | None:
    """The build as a message."""
    if build is None:
        return None
    return job_pb2.Build(base=build.base, image=build.image, steps=build.steps, env=build.env)


def build_from_proto(message: job_pb2.Build) -> Build:
    """The build of a message."""
    return Build(base=message.base, image=message.image, steps=tuple(message.steps), env=dict(message.env))


def defaults_to_proto(defaults: AppliedDefaults | None) -> job_pb2.AppliedDefaults | None:
    """The defaults that were applied, as a message."""
    if defaults is None:
        return None
    return job_pb2.AppliedDefaults(
        category=CATEGORIES.to_proto(defaults.category), version=defaults.version, fields=defaults.fields
    )


def defaults_from_proto(message: job_pb2.AppliedDefaults, findings: Findings) -> AppliedDefaults:
    """The defaults of a message; experiments where it names no category."""
    category = findings.member(CATEGORIES, message.category, "defaults.category")
    return AppliedDefaults(
        category=category or Category.EXPERIMENTS, version=message.version, fields=tuple(message.fields)
    )


def _conventions(message: job_pb2.FrameworkOptions, findings: Findings) -> tuple[Convention, ...]:
    read = [
        findings.member(CONVENTIONS, number, f"options.conventions[{index}]")
        for index, number in enumerate(message.conventions)
    ]
    return tuple(convention for convention in read if convention is not None)


def _rendezvous_to_proto(rendezvous: Rendezvous) -> job_pb2.Rendezvous:
    return job_pb2.Rendezvous(
        backend=rendezvous.backend,
        host=rendezvous.host,
        port=rendezvous.port,
        job_id=rendezvous.job_id,
        conf=rendezvous.conf,
        max_restarts=rendezvous.max_restarts,
        standalone=rendezvous.standalone,
    )


def _rendezvous_from_proto(message: job_pb2.Rendezvous) -> Rendezvous:
    return Rendezvous(
        backend=message.backend or _BACKEND,
        host=message.host,
        port=message.port if message.HasField("port") else None,
        job_id=message.job_id,
        conf=dict(message.conf),
        max_restarts=message.max_restarts if message.HasField("max_restarts") else None,
        standalone=message.standalone,
    )
