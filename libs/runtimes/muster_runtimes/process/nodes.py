"""The nodes that a machine offers: itself, or several virtual nodes that a user describes on the command line.

A description is ``NAME[:KEY=VALUE[,KEY=VALUE...]]``, for example ``n1:cpu=4,gpu=2,memory=8Gi,label.zone=a``. Unspecified resources are
those of the machine, except GPUs, of which there are none by default. The resources of virtual nodes are accounted, not enforced: they
are for trying a cluster on a laptop.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from muster_core.models import GPU_MILLI, Node, Resources
from muster_core.quantities import QuantityError, parse_bytes, parse_cpu, parse_gpu
from muster_runtimes.process.ports import LOOPBACK

PODS = 250
"""The default number of replicas that a node holds."""

HOSTNAME_LABEL = "kubernetes.io/hostname"

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_LABEL = "label."

# The scheduler tracks each GPU.
_MOST_GPUS = 1024


class NodeSpecError(ValueError):
    """A node description is invalid; the message quotes it and says what is wrong."""


def this_machine() -> Node:
    """Return this machine as a node with its host name: the CPUs of this process, all memory, the free disk, no GPU."""
    name = _dns_safe(socket.gethostname())
    return Node(
        name=name,
        allocatable=Resources(
            cpu=len(os.sched_getaffinity(0)) * 1000,
            memory=_memory(),
            ephemeral_storage=shutil.disk_usage("/").free,
        ),
        pods=PODS,
        labels={HOSTNAME_LABEL: name},
        address=LOOPBACK,
    )


def parse_nodes(texts: Iterable[str]) -> tuple[Node, ...]:
    """Parse node descriptions; without any, return this machine. Raises ``NodeSpecError``, also for a duplicate name."""
    nodes: dict[str, Node] = {}
    for text in texts:
        node = parse_node(text)
        if node.name in nodes:
            raise NodeSpecError(f"node {text!r}: another node has the name {node.name}")
        nodes[node.name] = node
    return tuple(nodes.values()) or (this_machine(),)


def parse_node(text: str) -> Node:
    """Parse a node description. Raises ``NodeSpecError``."""
    name, _, rest = text.partition(":")
    if not _NAME.fullmatch(name):
        raise _wrong(text, f"{name!r} is not a valid name; use at most 63 lower-case letters, digits and '-'")
    machine = this_machine()
    node = msgspec.structs.replace(machine, name=name, labels={HOSTNAME_LABEL: name})
    seen: set[str] = set()
    for pair in filter(None, rest.split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise _wrong(text, f"{pair!r} is not KEY=VALUE")
        if key in seen:
            raise _wrong(text, f"{key} is given twice")
        seen.add(key)
        try:
            node = _with(node, key, value)
        except (QuantityError, NodeSpecError) as error:
            raise _wrong(text, f"{pair!r}: {error}") from error
    return node


def _with(node: Node, key: str, value: str) -> Node:
    if key.startswith(_LABEL):
        return msgspec.structs.replace(
            node, labels={**node.labels, **_label(key.removeprefix(_LABEL), value)}
        )
    if key == "pods":
        return msgspec.structs.replace(node, pods=_count(value))
    if key == "gpu_memory":
        return msgspec.structs.replace(node, gpu_memory=parse_bytes(value))
    field = _AMOUNTS.get(key)
    if field is None:
        known = ", ".join((*_AMOUNTS, "gpu_memory", "pods", f"{_LABEL}NAME"))
        raise NodeSpecError(f"unknown key {key!r}; the keys are {known}")
    name, parse = field
    return msgspec.structs.replace(
        node, allocatable=msgspec.structs.replace(node.allocatable, **{name: parse(value)})
    )


def _label(key: str, value: str) -> dict[str, str]:
    if not _LABEL_KEY.fullmatch(key):
        raise NodeSpecError(f"{key!r} is not a valid label name")
    if not _LABEL_VALUE.fullmatch(value):
        raise NodeSpecError(f"{value!r} is not a valid label value")
    return {key: value}


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise NodeSpecError("give a whole number below a million")
    return int(text)


def _whole_gpus(text: str) -> int:
    gpu = parse_gpu(text)
    if gpu % GPU_MILLI:
        raise NodeSpecError("give a whole number of GPUs")
    if gpu > _MOST_GPUS * GPU_MILLI:
        raise NodeSpecError(f"a node has at most {_MOST_GPUS} GPUs")
    return gpu


_AMOUNTS: dict[str, tuple[str, Callable[[str], int]]] = {
    "cpu": ("cpu", parse_cpu),
    "gpu": ("gpu", _whole_gpus),
    "memory": ("memory", parse_bytes),
    "storage": ("ephemeral_storage", parse_bytes),
}


def _memory() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _dns_safe(host: str) -> str:
    safe = re.sub(r"[^a-z0-9-]+", "-", host.partition(".")[0].lower())[:63].strip("-")
    return safe or "localhost"


def _wrong(text: str, why: str) -> NodeSpecError:
    return NodeSpecError(f"node {text!r}: {why}")
