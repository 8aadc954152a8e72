"""Clusters as a shorthand, in YAML and as tables."""

from __future__ import annotations

import pytest

from muster_core.simulation import is_shorthand, read_cluster, read_shorthand


def test_a_shorthand_describes_groups_of_nodes() -> None:
    cluster = read_shorthand("2x8gpu+3x4gpu-48cpu-256gib")
    assert [node.allocatable.gpu for node in cluster.nodes] == [8000, 8000, 4000, 4000, 4000]
    assert cluster.nodes[0].allocatable.cpu == 128_000
    assert cluster.nodes[2].allocatable.cpu == 48_000
    assert cluster.nodes[2].allocatable.memory == 256 * 2**30
    assert len({node.name for node in cluster.nodes}) == 5
    assert cluster.gpus == 28_000


@pytest.mark.parametrize("text", ["8x8gpu", "1x0gpu-4cpu", "2x8GPU + 1x4gpu"])
def test_a_valid_shorthand(text: str) -> None:
    assert is_shorthand(text)
    assert read_shorthand(text).problems == ()


@pytest.mark.parametrize("text", ["cluster.yaml", "8gpu", "", "8x8", "8x8gpu+nodes.csv"])
def test_other_texts_are_no_shorthand(text: str) -> None:
    assert not is_shorthand(text)
    assert read_shorthand(text).problems


def test_a_yaml_list_of_nodes() -> None:
    cluster = read_cluster(
        "nodes:\n- {count: 2, cpus: 96, memory: 768Gi, gpus: 8, labels: {gpu-model: A100}}\n- {name: login, cpus: 500m}\n"
    )
    assert cluster.problems == ()
    assert [node.name for node in cluster.nodes] == ["node-0000", "node-0001", "login"]
    assert cluster.nodes[1].labels == {"gpu-model": "A100"}
    assert cluster.nodes[2].allocatable.cpu == 500


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("- {count: 0}", "nodes[0].count"),
        ("- {gpus: many}", "nodes[0].gpus"),
        ("- {cpu: 4}", "nodes[0].cpu"),
        ("- {cpus: 4, labels: x}", "nodes[0].labels"),
        ("- {memory: 4Qi}", "nodes[0]"),
        ("nodes: 3", "nodes"),
        ("[]", "nodes"),
        ("a: [", ""),
        ("- {name: a}\n- {name: a}", "nodes"),
        ("colour,weight\n1,2\n", ""),
    ],
)
def test_a_problem_has_its_path(text: str, path: str) -> None:
    cluster = read_cluster(text)
    assert cluster.nodes == ()
    assert [problem.path for problem in cluster.problems] == [path]


def test_a_table_with_musters_columns() -> None:
    cluster = read_cluster("count,cpus,memory,gpus,labels\n2,64,256Gi,4,gpu-model=V100;rack=a\n")
    assert [node.labels for node in cluster.nodes] == [{"gpu-model": "V100", "rack": "a"}] * 2


def test_published_node_lists() -> None:
    tiresias = read_cluster(
        "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n2,3,8,92,350"
    )
    assert (len(tiresias.nodes), tiresias.gpus) == (6, 48_000)
    assert len({tuple(node.labels.items()) for node in tiresias.nodes}) == 2
    openb = read_cluster(
        "sn,cpu_milli,memory_mib,gpu,model\nopenb-node-0022,128000,786432,8,G3\nopenb-node-0000,32000,262144,0,\n"
    )
    assert [(node.name, node.allocatable.gpu, node.labels) for node in openb.nodes] == [
        ("openb-node-0022", 8000, {"gpu-model": "G3"}),
        ("openb-node-0000", 0, {}),
    ]
    philly = read_cluster("machineId, number of GPUs, single GPU mem\nm31,8, 24GB\n")
    assert [(node.name, node.allocatable.gpu) for node in philly.nodes] == [("m31", 8000)]
