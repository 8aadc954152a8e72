"""The port of a replica. Source: the operators' documented port names and defaults."""

from __future__ import annotations

import msgspec

from muster_core.models import Framework, Job

_PLAIN = 2222


class FrameworkPort(msgspec.Struct, frozen=True):
    """The name of a framework's port in a pod, and its default number."""

    name: str
    number: int


FRAMEWORK_PORTS: dict[Framework, FrameworkPort] = {
    Framework.TENSORFLOW: FrameworkPort("tfjob-port", 2222),
    Framework.PYTORCH: FrameworkPort("pytorchjob-port", 23456),
    Framework.XGBOOST: FrameworkPort("xgboostjob-port", 9999),
    Framework.PADDLE: FrameworkPort("master", 36543),
    Framework.JAX: FrameworkPort("jaxjob-port", 6666),
    Framework.MXNET: FrameworkPort("mxjob-port", 9091),
}
"""Frameworks with a conventional port."""


def port_of(job: Job, role: str, index: int) -> int:
    """Return the port of a replica with its own network: the framework's by name, else the first declared one.

    Raises ``LookupError`` for an unknown role.
    """
    found = job.role(role)
    if found is None:
        raise LookupError(f"{job.name} has no role {role}")
    ports = found.template_of(index).ports
    framework = FRAMEWORK_PORTS.get(job.framework)
    if framework is None:
        return ports[0].number if ports else _PLAIN
    return next((port.number for port in ports if port.name == framework.name), framework.number)
