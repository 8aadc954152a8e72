import sys
from collections import Counter
from pathlib import Path

# Tests are imported by path, so sibling modules need this path.
sys.path.insert(0, str(Path(__file__).parent))

import msgspec
from cluster_gangs import Shape, gang_name, gang_of, in_groups, pods, submissions

SHAPE = Shape(gangs=5, members=3)


def test_pods_without_nodes_differ_from_those_on_nodes_by_nothing_else() -> None:
    waiting, placed = pods(SHAPE)[1][2], pods(SHAPE, nodes={"a": "uid-a", "b": "uid-b"})[1][2]
    assert placed["spec"].pop("nodeName") == "b"
    held = [placed["metadata"].pop("finalizers"), placed["metadata"].pop("ownerReferences")]
    assert (held[1][0]["kind"], held[1][0]["name"], held[1][0]["uid"]) == ("Node", "b", "uid-b")
    kept = msgspec.json.decode(waiting["metadata"]["annotations"].pop("held"))
    assert kept[0] == held[0]
    assert [each["kind"] for each in kept[1]] == ["Node"]
    assert waiting == placed


def test_a_pod_name_contains_the_name_of_its_gang() -> None:
    found = Counter(gang_of(pod["metadata"]["name"]) for gang in pods(SHAPE) for pod in gang)
    assert found == {gang_name(index): SHAPE.members for index in range(SHAPE.gangs)}


def test_every_group_is_created_once_and_before_its_pods() -> None:
    seen: list[str] = []
    for each in in_groups(SHAPE, ahead=2):
        if each["kind"] == "PodGroup":
            seen.append(each["metadata"]["name"])
        else:
            assert each["spec"]["schedulingGroup"]["podGroupName"] in seen
    assert seen == [gang_name(index) for index in range(SHAPE.gangs)]


def test_what_is_submitted_asks_for_what_the_pods_ask_for() -> None:
    first = submissions(SHAPE)[0].spec
    (role,) = first.roles
    container = pods(SHAPE)[0][0]["spec"]["containers"][0]
    assert (role.replicas, role.template.image) == (SHAPE.members, container["image"])
    assert role.template.requests.cpu_milli == 1000 * int(container["resources"]["requests"]["cpu"])
    assert role.template.requests.gpu_milli == 1000 * int(
        container["resources"]["requests"]["nvidia.com/gpu"]
    )
