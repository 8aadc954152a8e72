"""Nodes are described in a line each, and a mistake is named."""

import os

import pytest

from muster_runtimes.process import NodeSpecError, parse_node, parse_nodes, this_machine


def test_this_machine_offers_what_it_has():
    node = this_machine()

    assert node.allocatable.cpu == 1000 * len(os.sched_getaffinity(0))
    assert node.allocatable.memory > 2**20
    assert (node.allocatable.gpu, node.pods, node.address) == (0, 250, "127.0.0.1")
    assert node.labels == {"kubernetes.io/hostname": node.name}


def test_a_description_names_what_differs():
    node = parse_node(
        "n1:cpu=4,gpu=2,memory=8Gi,gpu_memory=16Gi,pods=9,label.zone=a,label.example.com/rack=r1"
    )

    assert (node.name, node.allocatable.cpu, node.allocatable.gpu) == ("n1", 4000, 2000)
    assert (node.allocatable.memory, node.gpu_memory, node.pods) == (8 * 2**30, 16 * 2**30, 9)
    assert node.labels == {"kubernetes.io/hostname": "n1", "zone": "a", "example.com/rack": "r1"}
    assert node.allocatable.ephemeral_storage > 0


def test_a_name_alone_is_this_machine_under_another_name():
    assert parse_node("n1").allocatable.cpu == this_machine().allocatable.cpu


def test_no_description_is_this_machine():
    assert [node.name for node in parse_nodes([])] == [this_machine().name]
    assert [node.name for node in parse_nodes(["a", "b:cpu=1"])] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no name"),
        ("N1:cpu=1", "'N1' is no name"),
        ("n1:cpu", "'cpu' is not KEY=VALUE"),
        ("n1:cpu=1,cpu=2", "cpu is given twice"),
        ("n1:cpu=many", "'cpu=many': a quantity is"),
        ("n1:cpu=-1", "'cpu=-1'"),
        ("n1:gpu=1.5", "'gpu=1.5'"),
        ("n1:gpu=500m", "a node has whole GPUs only"),
        ("n1:gpu=99999999999", "at most 1024 GPUs"),
        ("n1:pods=some", "a whole number below a million is wanted"),
        (
            "n1:disk=1",
            "there is no 'disk', there are cpu, gpu, memory, storage, gpu_memory, pods, label.NAME",
        ),
        ("n1:label.=a", "'' is no label name"),
        ("n1:label.zone=a b", "'a b' is no label value"),
    ],
)
def test_a_mistake_is_named(text: str, message: str):
    with pytest.raises(NodeSpecError) as caught:
        parse_node(text)

    assert str(caught.value).startswith(f"node {text!r}: ")
    assert message in str(caught.value)


def test_a_name_cannot_be_taken_twice():
    with pytest.raises(NodeSpecError, match="the name n1 is taken by another node"):
        parse_nodes(["n1", "n1:cpu=2"])
