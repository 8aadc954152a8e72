"""Descriptions of nodes on the command line, and their errors."""

import os

import pytest

from muster_runtimes.process import NodeSpecError, parse_node, parse_nodes, this_machine


def test_this_machine_offers_its_own_resources():
    node = this_machine()

    assert node.allocatable.cpu == 1000 * len(os.sched_getaffinity(0))
    assert node.allocatable.memory > 2**20
    assert (node.allocatable.gpu, node.pods, node.address) == (0, 250, "127.0.0.1")
    assert node.labels == {"kubernetes.io/hostname": node.name}


def test_a_description_overrides_the_machines_resources():
    node = parse_node(
        "n1:cpu=4,gpu=2,memory=8Gi,gpu_memory=16Gi,pods=9,label.zone=a,label.example.com/rack=r1"
    )

    assert (node.name, node.allocatable.cpu, node.allocatable.gpu) == ("n1", 4000, 2000)
    assert (node.allocatable.memory, node.gpu_memory, node.pods) == (8 * 2**30, 16 * 2**30, 9)
    assert node.labels == {"kubernetes.io/hostname": "n1", "zone": "a", "example.com/rack": "r1"}
    assert node.allocatable.ephemeral_storage > 0


def test_a_name_alone_has_the_machines_resources():
    assert parse_node("n1").allocatable.cpu == this_machine().allocatable.cpu


def test_without_descriptions_the_only_node_is_this_machine():
    assert [node.name for node in parse_nodes([])] == [this_machine().name]
    assert [node.name for node in parse_nodes(["a", "b:cpu=1"])] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a valid name"),
        ("N1:cpu=1", "'N1' is not a valid name"),
        ("n1:cpu", "'cpu' is not KEY=VALUE"),
        ("n1:cpu=1,cpu=2", "cpu is given twice"),
        ("n1:cpu=many", "'cpu=many': a quantity must be"),
        ("n1:cpu=-1", "'cpu=-1'"),
        ("n1:gpu=1.5", "'gpu=1.5'"),
        ("n1:gpu=500m", "give a whole number of GPUs"),
        ("n1:gpu=99999999999", "at most 1024 GPUs"),
        ("n1:pods=some", "give a whole number below a million"),
        (
            "n1:disk=1",
            "unknown key 'disk'; the keys are cpu, gpu, memory, storage, gpu_memory, pods, label.NAME",
        ),
        ("n1:label.=a", "'' is not a valid label name"),
        ("n1:label.zone=a b", "'a b' is not a valid label value"),
    ],
)
def test_an_invalid_description_is_rejected_with_the_reason(text: str, message: str):
    with pytest.raises(NodeSpecError) as caught:
        parse_node(text)

    assert str(caught.value).startswith(f"node {text!r}: ")
    assert message in str(caught.value)


def test_a_duplicate_node_name_is_rejected():
    with pytest.raises(NodeSpecError, match="another node has the name n1"):
        parse_nodes(["n1", "n1:cpu=2"])
