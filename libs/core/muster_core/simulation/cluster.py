"""Parse clusters: a shorthand, or a file of YAML or columns.

Published cluster descriptions are supported: Tiresias' and Muri's cluster specs, Alibaba's ``openb_node_list``, and
Philly's machine list.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
import yaml

from muster_core.models import GPU_MILLI, Node, Problem, Resources
from muster_core.quantities import QuantityError, parse_bytes, parse_cpu, parse_quantity
from muster_core.simulation.traces import GPU_MODEL_LABEL

_MAX_NODES = 100_000
_CPUS_PER_GPU = 16
_GIB_PER_GPU = 128
_MIB = 2**20
_GIB = 2**30
_MAX_PODS = 250

_SHORTHAND = re.compile(
    r"(?P<count>\d{1,6})x(?P<gpus>\d{1,3})gpu(?:-(?P<cpus>\d{1,5})cpu)?(?:-(?P<gib>\d{1,6})gib)?"
)
_KEYS = {"count", "name", "cpus", "memory", "gpus", "gpu_memory", "pods", "labels"}
_OPENB = {"sn", "cpu_milli", "memory_mib", "gpu"}
_TIRESIAS = {"num_switch", "num_node_p_switch", "num_gpu_p_node"}
_PHILLY = {"machineId", "number of GPUs"}
RACK_LABEL = "topology.kubernetes.io/rack"


class SimulatedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes, by name, or the problems of their description."""

    nodes: tuple[Node, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def gpus(self) -> int:
        """Return the milli-GPUs in total."""
        return sum(node.allocatable.gpu for node in self.nodes)


class _InvalidCluster(ValueError):
    """A problem of a description, with its location."""

    def __init__(self, path: str, message: str, fix: str = "", code: str = "Invalid", line: int = 0) -> None:
        super().__init__(message)
        self.problem = Problem(code=code, path=path, message=message, fix=fix, line=line)


def is_shorthand(text: str) -> bool:
    """Return whether ``text`` is a shorthand such as ``8x8gpu`` or ``4x8gpu-96cpu-768gib+2x4gpu``."""
    return all(_SHORTHAND.fullmatch(part.strip().lower()) for part in text.split("+"))


def read_shorthand(text: str) -> SimulatedCluster:
    """Parse ``<count>x<GPUs>gpu[-<CPUs>cpu][-<GiB>gib]``, several kinds joined by ``+``.

    Defaults are 16 CPUs and 128 GiB for each GPU; a node without GPUs has as much as one GPU.
    """
    groups: list[Mapping[str, object]] = []
    for part in text.split("+"):
        found = _SHORTHAND.fullmatch(part.strip().lower())
        if found is None:
            fix = "write 8x8gpu for 8 nodes of 8 GPUs"
            error = _InvalidCluster("cluster", f"{part!r} is not a cluster shorthand", fix)
            return SimulatedCluster(problems=(error.problem,))
        memory = f"{found['gib']}Gi" if found["gib"] else None
        groups.append(
            {"count": found["count"], "gpus": found["gpus"], "cpus": found["cpus"], "memory": memory}
        )
    return _cluster_of(groups)


def read_cluster(text: str) -> SimulatedCluster:
    """Parse a file: a YAML list of nodes (or ``nodes:`` with one), or a table."""
    first = text.lstrip("\ufeff \t\r\n").split("\n", 1)[0]
    is_table = "," in first and not first.lstrip().startswith(("-", "{", "[", "nodes"))
    try:
        return _cluster_of(_groups_of_table(text) if is_table else _groups_of_yaml(text))
    except _InvalidCluster as error:
        return SimulatedCluster(problems=(error.problem,))


def _groups_of_yaml(text: str) -> Sequence[Mapping[str, object]]:
    try:
        found = cast("object", yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise _InvalidCluster("", f"the file is not YAML: {error}") from None
    if isinstance(found, dict):
        found = cast("Mapping[str, object]", found).get("nodes")
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in cast("list[object]", found)):
        message = "a cluster must be a list of nodes, each with count, cpus, memory, gpus and labels"
        raise _InvalidCluster("nodes", message)
    return cast("list[Mapping[str, object]]", found)


def _groups_of_table(text: str) -> Sequence[Mapping[str, object]]:
    reader = csv.DictReader(io.StringIO(text.lstrip("\ufeff")), restval="")
    reader.fieldnames = [column.strip() for column in reader.fieldnames or ()]
    columns = set(reader.fieldnames)
    rows = [{key: value.strip() for key, value in row.items() if value} for row in reader]
    try:
        if columns >= _TIRESIAS:
            return [group for row in rows for group in _tiresias_groups(row)]
        if columns >= _OPENB:
            return [_openb_group(row) for row in rows]
        if columns >= _PHILLY:
            return [{"name": row["machineId"], "gpus": row["number of GPUs"]} for row in rows]
        if columns & {"gpus", "cpus"}:
            return [{**row, "labels": _labels(row.get("labels", ""))} for row in rows]
    except (KeyError, ValueError) as error:
        raise _InvalidCluster("", f"a row is incomplete, or has an invalid number: {error}") from None
    message = f"the columns ({', '.join(sorted(columns))}) do not describe a cluster"
    raise _InvalidCluster("", message, f"use {', '.join(sorted(_KEYS))}", code="UnknownFormat", line=1)


def _tiresias_groups(row: Mapping[str, str]) -> list[dict[str, object]]:
    group = {
        "count": row["num_node_p_switch"],
        "gpus": row["num_gpu_p_node"],
        "cpus": row.get("num_cpu_p_node"),
        "memory": f"{row['mem_p_node']}Gi" if row.get("mem_p_node") else None,
    }
    return [{**group, "labels": {RACK_LABEL: f"switch-{switch}"}} for switch in range(int(row["num_switch"]))]


def _openb_group(row: Mapping[str, str]) -> dict[str, object]:
    return {
        "name": row["sn"],
        "gpus": row["gpu"],
        "cpus": f"{row['cpu_milli']}m",
        "memory": f"{row['memory_mib']}Mi",
        "labels": {GPU_MODEL_LABEL: row["model"]} if row.get("model") else {},
    }


def _labels(text: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in text.split(";") if pair.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _cluster_of(groups: Sequence[Mapping[str, object]]) -> SimulatedCluster:
    nodes: list[Node] = []
    problems: list[Problem] = []
    for position, group in enumerate(groups):
        try:
            given = {key: value for key, value in group.items() if value is not None}
            nodes += _nodes(given, f"nodes[{position}]", len(nodes))
        except _InvalidCluster as error:
            problems.append(error.problem)
    names = [node.name for node in nodes]
    if len(set(names)) != len(names):
        name, _ = Counter(names).most_common(1)[0]
        problems.append(Problem(code="Duplicate", path="nodes", message=f"several nodes are named {name}"))
    if not nodes and not problems:
        problems.append(Problem(code="Empty", path="nodes", message="the cluster has no nodes"))
    return SimulatedCluster(nodes=() if problems else tuple(nodes), problems=tuple(problems))


def _nodes(group: Mapping[str, object], path: str, before: int) -> list[Node]:
    unknown = sorted(set(group) - _KEYS)
    if unknown:
        raise _InvalidCluster(
            f"{path}.{unknown[0]}", f"a node has no field {unknown[0]}", f"use {', '.join(sorted(_KEYS))}"
        )
    count = _amount(group, "count", path, default=1)
    if not 1 <= count <= _MAX_NODES - before:
        raise _InvalidCluster(f"{path}.count", f"a cluster must have 1 to {_MAX_NODES} nodes, not {count}")
    gpus = _amount(group, "gpus", path, default=0)
    share = max(gpus, 1)
    try:
        cpu = parse_cpu(group.get("cpus", share * _CPUS_PER_GPU))
        memory = parse_bytes(group.get("memory", f"{share * _GIB_PER_GPU}Gi"))
        gpu_memory = parse_bytes(group.get("gpu_memory", 0))
    except QuantityError as error:
        raise _InvalidCluster(path, f"an amount is invalid: {error}", "write 64, 500m or 256Gi") from None
    labels = group.get("labels", {})
    if not isinstance(labels, dict):
        raise _InvalidCluster(f"{path}.labels", "labels must be a mapping of names to values")
    prefix = str(group.get("name", "node"))
    names = (
        [prefix]
        if count == 1 and "name" in group
        else [f"{prefix}-{before + number:04d}" for number in range(count)]
    )
    texts = {str(key): str(value) for key, value in cast("dict[object, object]", labels).items()}
    return [
        Node(
            name=name,
            allocatable=Resources(cpu=cpu, memory=memory, gpu=gpus * GPU_MILLI),
            gpu_memory=gpu_memory,
            pods=_amount(group, "pods", path, default=_MAX_PODS),
            labels=texts,
        )
        for name in names
    ]


def _amount(group: Mapping[str, object], key: str, path: str, *, default: int) -> int:
    try:
        return parse_quantity(group.get(key, default))
    except QuantityError as error:
        raise _InvalidCluster(f"{path}.{key}", f"{key} is invalid: {error}", "write a whole number") from None
