"""Nodes as the model has them, and the usage of foreign pods."""

from __future__ import annotations

from typing import Any

import msgspec

from muster_core.models import Resources, Taint
from muster_formats.pods import to_resources
from muster_runtimes.kubernetes.manifests import format_resource_list
from muster_runtimes.kubernetes.nodes import (
    ForeignUsage,
    gpu_resource_of,
    parse_resource_list,
    pod_requests,
    to_node,
)
from muster_runtimes.kubernetes.objects import ClusterNode, Pod


def node(**status: Any) -> ClusterNode:
    allocatable = {"cpu": "7910m", "memory": "32Gi", "pods": "110", **status.pop("allocatable", {})}
    conditions = [{"type": "Ready", "status": "True"}]
    node_status = {"allocatable": allocatable, "conditions": conditions, **status}
    metadata = {"name": "n1", "labels": {"nvidia.com/gpu.memory": "81920"}}
    taint = {"key": "dedicated", "value": "train", "effect": "NoSchedule"}
    return msgspec.convert(
        {"metadata": metadata, "spec": {"taints": [taint]}, "status": node_status}, ClusterNode
    )


def pod(uid: str, *containers: dict[str, Any], node_name: str = "n1", **spec: Any) -> Pod:
    return msgspec.convert(
        {"metadata": {"uid": uid}, "spec": {"nodeName": node_name, "containers": list(containers), **spec}},
        Pod,
    )


def asks(**requests: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests}}


def test_a_node_is_converted_with_its_resources_and_taints() -> None:
    seen = to_node(node(allocatable={"nvidia.com/gpu": "4", "example.com/fpga": "2"}), ForeignUsage())
    assert seen.allocatable == Resources(
        cpu=7910, memory=32 * 2**30, gpu=4000, extended={"example.com/fpga": 2}
    )
    assert (seen.gpu_memory, seen.ready) == (80 * 2**30, True)
    assert seen.taints == (Taint(key="dedicated", value="train", effect="NoSchedule"),)


def test_a_node_with_an_unknown_ready_condition_is_not_ready() -> None:
    assert not to_node(node(conditions=[{"type": "Ready", "status": "Unknown"}]), ForeignUsage()).ready


def test_foreign_pods_are_counted_until_they_are_removed() -> None:
    foreign = ForeignUsage()
    assert foreign.add(pod("a", asks(cpu="1"))) == "n1"
    assert foreign.add(pod("a", asks(cpu="1"))) == ""
    foreign.add(pod("b", asks(cpu="500m", memory="1Gi")))
    seen = to_node(node(), foreign)
    assert (seen.foreign, seen.pods) == (Resources(cpu=1500, memory=2**30), 108)

    assert foreign.remove("a") == "n1"
    assert foreign.remove("b") == "n1"
    assert foreign.remove("b") == ""
    assert to_node(node(), foreign).foreign == Resources()


def test_pod_requests_follow_the_rules_for_init_containers_and_sidecars() -> None:
    init = {"name": "i", "resources": {"requests": {"cpu": "3"}}}
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}
    limited = {"name": "l", "resources": {"limits": {"memory": "1Gi"}}}
    taken = pod_requests(
        pod("a", asks(cpu="1"), limited, initContainers=[sidecar, init], overhead={"cpu": "50m"}).spec
    )
    assert taken == Resources(cpu=3150, memory=2**30)


def test_pod_level_requests_replace_those_of_the_containers() -> None:
    whole = {"requests": {"cpu": "2"}}
    assert pod_requests(pod("a", asks(cpu="1", memory="1Mi"), resources=whole).spec) == Resources(
        cpu=2000, memory=2**20
    )


def test_formatted_quantities_parse_to_the_same_amounts() -> None:
    amounts = Resources(cpu=1500, memory=3 * 2**30, gpu=2000, extended={"example.com/fpga": 1})
    written = format_resource_list(amounts, gpu_resource="nvidia.com/gpu")
    assert written["nvidia.com/gpu"] == "2"
    assert to_resources(parse_resource_list(written)) == amounts


def test_the_gpu_resource_is_the_name_that_the_nodes_use() -> None:
    assert gpu_resource_of([node()]) == "nvidia.com/gpu"
    assert gpu_resource_of([node(allocatable={"amd.com/gpu": "1"})]) == "amd.com/gpu"
