"""What is kept up to date node by node, or looked at anew where much has changed, is what somebody sees who looks for the first time."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from muster_core.models import Job, Node, Resources, Role, Taint, Template, Toleration
from muster_core.scheduling.placement import Allocation, Gang, Snapshot, gang_of
from muster_core.scheduling.placement.candidates import Candidates
from muster_core.scheduling.placement.fit_index import FitIndex

NODES = 24
RACK = "rack"
GANG = gang_of(
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
                    tolerations=(Toleration(key="kept", operator="Exists"),),
                ),
            ),
        ),
    )
)

events = st.tuples(
    st.sampled_from(["hold", "release", "cordon", "relabel", "taint", "move", "ask"]),
    st.lists(st.integers(0, NODES - 1), min_size=1, max_size=10),
)


def _node(position: int) -> Node:
    return Node(
        name=f"n{position:02d}",
        allocatable=Resources(cpu=8000, gpu=4000),
        labels={RACK: f"r{position % 5}", "sort": "old" if position % 4 == 0 else "new"},
        taints=(Taint(key="kept"),) if position % 3 == 0 else (),
    )


def _after(event: str, node: Node) -> Node:
    replace = msgspec.structs.replace
    if event == "cordon":
        return replace(node, unschedulable=not node.unschedulable)
    if event == "relabel":
        return replace(node, labels={**node.labels, "sort": "old" if node.labels["sort"] == "new" else "new"})
    if event == "taint":
        return replace(node, taints=() if node.taints else (Taint(key="barred"),))
    return replace(node, labels={**node.labels, RACK: "r9"})


def _happen(event: str, position: int, turn: int, snapshot: Snapshot) -> None:
    name = f"n{position:02d}"
    if event == "hold":
        snapshot.allocate(
            (f"job-{turn}", 1, "worker", position),
            Allocation(name, GANG.roles[0].request.demand, (turn % 4,)),
        )
    elif event == "release":
        for key in [key for key, hold in snapshot.allocations.items() if hold.node == name]:
            snapshot.release(key)
    elif event != "ask":
        snapshot.put_node(_after(event, snapshot.nodes[name]))


def _seen(fits: FitIndex) -> tuple[object, ...]:
    totals = fits.totals(RACK)
    return (
        fits.total,
        sorted(fits.names),
        [fits.best(times) for times in (1, 2, 4)],
        [fits.pack(number) for number in (1, 3, 9, 30)],
        [list(totals.at_least(times)) for times in (1, 5, 12)],
        list(totals.descending()),
        [totals.sum(f"r{rack}") for rack in range(10)],
    )


def _fits(gang: Gang, snapshot: Snapshot) -> FitIndex:
    request = gang.roles[0].request
    return Candidates(snapshot, [request]).fit_index(request)


@given(st.lists(events, max_size=14))
def test_what_is_kept_up_to_date_is_what_a_first_look_sees(steps: list[tuple[str, list[int]]]) -> None:
    snapshot = Snapshot(_node(position) for position in range(NODES))
    for turn, (event, positions) in enumerate([("ask", [0]), *steps, ("ask", [0])]):
        for position in dict.fromkeys(positions):
            _happen(event, position, turn, snapshot)
        if event == "ask":
            kept = _seen(_fits(GANG, snapshot))
            fresh = Snapshot(snapshot.nodes.values())
            fresh.allocate_all(snapshot.allocations.items())
            assert kept == _seen(_fits(GANG, fresh))
