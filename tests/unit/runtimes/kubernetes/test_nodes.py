"""A node as it is placed upon, and what the pods of others take of it."""

from __future__ import annotations

from typing import Any

import msgspec

from muster_core.models import Resources, Taint
from muster_formats.pods.resource_lists import to_resources
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
    said = {"allocatable": allocatable, "conditions": conditions, **status}
    metadata = {"name": "n1", "labels": {"nvidia.com/gpu.memory": "81920"}}
    taint = {"key": "dedicated", "value": "train", "effect": "NoSchedule"}
    return msgspec.convert({"metadata": metadata, "spec": {"taints": [taint]}, "status": said}, ClusterNode)


def pod(uid: str, *containers: dict[str, Any], node_name: str = "n1", **spec: Any) -> Pod:
    return msgspec.convert(
        {"metadata": {"uid": uid}, "spec": {"nodeName": node_name, "containers": list(containers), **spec}},
        Pod,
    )


def asks(**requests: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests}}


def test_a_node_says_what_it_offers() -> None:
    seen = to_node(node(allocatable={"nvidia.com/gpu": "4", "example.com/fpga": "2"}), ForeignUsage())
    assert seen.allocatable == Resources(
        cpu=7910, memory=32 * 2**30, gpu=4000, extended={"example.com/fpga": 2}
    )
    assert (seen.gpu_memory, seen.ready) == (80 * 2**30, True)
    assert seen.taints == (Taint(key="dedicated", value="train", effect="NoSchedule"),)


def test_a_node_that_says_nothing_of_itself_is_not_ready() -> None:
    assert not to_node(node(conditions=[{"type": "Ready", "status": "Unknown"}]), ForeignUsage()).ready


def test_others_are_counted_while_they_are_there() -> None:
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


def test_a_pod_takes_what_kubernetes_counts() -> None:
    init = {"name": "i", "resources": {"requests": {"cpu": "3"}}}
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}
    limited = {"name": "l", "resources": {"limits": {"memory": "1Gi"}}}
    taken = pod_requests(
        pod("a", asks(cpu="1"), limited, initContainers=[sidecar, init], overhead={"cpu": "50m"}).spec
    )
    assert taken == Resources(cpu=3150, memory=2**30)


def test_what_a_pod_states_as_a_whole_counts_alone() -> None:
    whole = {"requests": {"cpu": "2"}}
    assert pod_requests(pod("a", asks(cpu="1", memory="1Mi"), resources=whole).spec) == Resources(
        cpu=2000, memory=2**20
    )


def test_quantities_come_back_as_they_went() -> None:
    amounts = Resources(cpu=1500, memory=3 * 2**30, gpu=2000, extended={"example.com/fpga": 1})
    written = format_resource_list(amounts, gpu_resource="nvidia.com/gpu")
    assert written["nvidia.com/gpu"] == "2"
    assert to_resources(parse_resource_list(written)) == amounts


def test_gpus_are_called_what_the_nodes_call_them() -> None:
    assert gpu_resource_of([node()]) == "nvidia.com/gpu"
    assert gpu_resource_of([node(allocatable={"amd.com/gpu": "1"})]) == "amd.com/gpu"
