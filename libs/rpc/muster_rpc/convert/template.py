"""How one replica runs, on the wire."""

from __future__ import annotations

from muster_core.models import Port, Template, Toleration
from muster_rpc.convert.findings import Findings
from muster_rpc.convert.instants import duration_to_proto
from muster_rpc.convert.resources import resources_from_proto, resources_to_proto
from muster_rpc.convert.structs import struct_from_proto, struct_to_proto
from muster_rpc.v1 import job_pb2

_GRACE_S = Template().grace_s


def template_to_proto(template: Template) -> job_pb2.Template:
    """The template as a message; the grace is always said."""
    return job_pb2.Template(
        image=template.image,
        command=template.command,
        args=template.args,
        env=template.env,
        working_dir=template.working_dir,
        requests=resources_to_proto(template.requests),
        limits=resources_to_proto(template.limits),
        ports=[job_pb2.Port(name=port.name, number=port.number) for port in template.ports],
        labels=template.labels,
        annotations=template.annotations,
        node_selector=template.node_selector,
        tolerations=[_toleration_to_proto(toleration) for toleration in template.tolerations],
        node_affinity=struct_to_proto(template.node_affinity),
        grace=duration_to_proto(template.grace_s),
        pod=struct_to_proto(template.pod),
    )


def template_from_proto(message: job_pb2.Template, findings: Findings, path: str) -> Template:
    """The template of a message."""
    return Template(
        image=message.image,
        command=tuple(message.command),
        args=tuple(message.args),
        env=dict(message.env),
        working_dir=message.working_dir,
        requests=resources_from_proto(message.requests),
        limits=resources_from_proto(message.limits),
        ports=tuple(Port(name=port.name, number=port.number) for port in message.ports),
        labels=dict(message.labels),
        annotations=dict(message.annotations),
        node_selector=dict(message.node_selector),
        tolerations=tuple(_toleration_from_proto(toleration) for toleration in message.tolerations),
        node_affinity=struct_from_proto(message.node_affinity, findings, f"{path}.node_affinity"),
        grace_s=findings.seconds(message.grace, f"{path}.grace") if message.HasField("grace") else _GRACE_S,
        pod=struct_from_proto(message.pod, findings, f"{path}.pod"),
    )


def _toleration_to_proto(toleration: Toleration) -> job_pb2.Toleration:
    return job_pb2.Toleration(
        key=toleration.key,
        operator=toleration.operator,
        value=toleration.value,
        effect=toleration.effect,
    )


def _toleration_from_proto(message: job_pb2.Toleration) -> Toleration:
    return Toleration(
        key=message.key,
        operator=message.operator or "Equal",
        value=message.value,
        effect=message.effect,
    )
