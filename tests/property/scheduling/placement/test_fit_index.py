"""An index that is updated node by node, or recomputed after many changes, equals a new one."""

from __future__ import annotations

import msgspec
from hypothesis import given, strategies as st

from muster_core.models import Job, Node, Resources, Role, Taint, Template, Toleration
from muster_core.scheduling.placement import Allocation, Snapshot, gang_of
from muster_core.scheduling.placement.candidates import Candidates
from muster_core.scheduling.placement.fit_index import FitIndex

NODES = 24
RACK = "rack"
REQUEST = (
    gang_of(
        Job(
            name="job",
            roles=(
                Role(
                    name="worker",
                    replicas=1,
                    min=1,
                    max=1,
                    template=Template(
                        requests=Resources(cpu=1000, gpu=1000),
                        node_selector={"sort": "new"},
                        tolerations=(Toleration(key="reserved", operator="Exists"),),
                    ),
                ),
            ),
        )
    )
    .roles[0]
    .request
)

events = st.tuples(
    st.sampled_from(["allocate", "release", "cordon", "relabel", "taint", "move", "query"]),
    st.lists(st.integers(0, NODES - 1), min_size=1, max_size=10),
)


def _node(position: int) -> Node:
    return Node(
        name=f"n{position:02d}",
        allocatable=Resources(cpu=8000, gpu=4000),
        labels={RACK: f"r{position % 5}", "sort": "old" if position % 4 == 0 else "new"},
        taints=(Taint(key="reserved"),) if position % 3 == 0 else (),
    )


def _after(event: str, node: Node) -> Node:
    replace = msgspec.structs.replace
    if event == "cordon":
        return replace(node, unschedulable=not node.unschedulable)
    if event == "relabel":
        return replace(node, labels={**node.labels, "sort": "old" if node.labels["sort"] == "new" else "new"})
    if event == "taint":
        return replace(node, taints=() if node.taints else (Taint(key="excluded"),))
    return replace(node, labels={**node.labels, RACK: "r9"})


def _apply(event: str, position: int, turn: int, snapshot: Snapshot) -> None:
    name = f"n{position:02d}"
    if event == "allocate":
        snapshot.allocate(
            (f"job-{turn}", 1, "worker", position), Allocation(name, REQUEST.demand, (turn % 4,))
        )
    elif event == "release":
        for key in [key for key, one in snapshot.allocations.items() if one.node == name]:
            snapshot.release(key)
    elif event != "query":
        snapshot.put_node(_after(event, snapshot.nodes[name]))


def _answers(index: FitIndex) -> tuple[object, ...]:
    totals = index.totals(RACK)
    return (
        index.total,
        sorted(index.names),
        [index.best(times) for times in (1, 2, 4)],
        [index.pack(number) for number in (1, 3, 9, 30)],
        [list(totals.at_least(times)) for times in (1, 5, 12)],
        totals.descending(),
        [totals.sum(f"r{rack}") for rack in range(10)],
    )


def _index(snapshot: Snapshot) -> FitIndex:
    return Candidates(snapshot, [REQUEST]).fit_index(REQUEST)


@given(st.lists(events, max_size=14))
def test_an_updated_index_equals_a_new_one(steps: list[tuple[str, list[int]]]) -> None:
    snapshot = Snapshot(_node(position) for position in range(NODES))
    for turn, (event, positions) in enumerate([("query", [0]), *steps, ("query", [0])]):
        for position in dict.fromkeys(positions):
            _apply(event, position, turn, snapshot)
        if event == "query":
            updated = _answers(_index(snapshot))
            fresh = Snapshot(snapshot.nodes.values())
            fresh.allocate_all(snapshot.allocations.items())
            assert updated == _answers(_index(fresh))
