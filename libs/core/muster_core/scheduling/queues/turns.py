"""Whose turn it is: between queues by share, within one by its policy.

At every level of the tree goes first who is still within what it is guaranteed, then who has the lowest dominant share for its weight.
What a turn changes lies on one path from the top, so that only this path is looked at again.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator

from muster_core.scheduling.queues.ledger import Ledger, NodeKey
from muster_core.scheduling.queues.lines import Line
from muster_core.scheduling.queues.order import QueueKey
from muster_core.scheduling.queues.sizes import gang_amounts, smallest
from muster_core.scheduling.queues.tree import Account

Rank = tuple[int, int, NodeKey]
"""Lower goes first: 0 where guaranteed else 1, the share by weight, the name."""


class _Lane:
    """The lines of one account, merged in the order of their jobs."""

    def __init__(self, account: Account, above: _Node) -> None:
        self.account = account
        self.above = above
        self.node: NodeKey = account
        self._lines: list[Line] = []
        self._heap: list[tuple[QueueKey, int, int]] = []

    def add(self, line: Line) -> None:
        heapq.heappush(self._heap, (line.keys[0], len(self._lines), 0))
        self._lines.append(line)

    def first(self) -> Line | None:
        return self._lines[self._heap[0][1]] if self._heap else None

    def take(self) -> tuple[QueueKey, Line, int, int]:
        key, position, at = heapq.heappop(self._heap)
        return key, self._lines[position], position, at

    def go_on(self, position: int, at: int) -> None:
        keys = self._lines[position].keys
        if at + 1 < len(keys):
            heapq.heappush(self._heap, (keys[at + 1], position, at + 1))

    def close(self) -> None:
        self._heap.clear()


class _Node:
    """A queue with those of its children that have somebody waiting; the top has no ``queue``."""

    def __init__(self, queue: str, above: _Node | None) -> None:
        self.queue = queue
        self.above = above
        self.node: NodeKey = (queue,)
        self.children: list[_Node | _Lane] = []
        self.ranks: dict[NodeKey, Rank | None] = {}
        self.lane: _Lane | None = None
        self.fresh = False


class Turns:
    """The turns of one pass over ``lines``; ``ledger`` is what is held, and may change between turns for the account whose turn it was."""

    def __init__(self, lines: Iterable[Line], ledger: Ledger) -> None:
        self._ledger = ledger
        self._nodes: dict[str, _Node] = {"": _Node("", None)}
        lanes: dict[Account, _Lane] = {}
        for line in lines:
            account = line.shape.account
            lane = lanes.get(account)
            if lane is None:
                above = self._node(account[0])
                lane = lanes[account] = _Lane(account, above)
                above.children.append(lane)
            lane.add(line)

    def walk(self, blocked: Container[Line], closed: Container[Account]) -> Iterator[tuple[str, Line]]:
        """Every job (id and line) in the order in which they are tried.

        Jobs behind one whose line has been put into ``blocked`` meanwhile are left out, and all of an account in ``closed``.
        """
        top = self._nodes[""]
        while (lane := self._next(top)) is not None:
            (_, _, job_id), line, position, at = lane.take()
            yield job_id, line
            if lane.account in closed:
                lane.close()
            elif line not in blocked:
                lane.go_on(position, at)
            self._touch(lane)

    def _node(self, queue: str) -> _Node:
        node = self._nodes.get(queue)
        if node is None:
            above = self._node(self._ledger.tree.specs[queue].parent)
            node = self._nodes[queue] = _Node(queue, above)
            above.children.append(node)
        return node

    def _touch(self, lane: _Lane) -> None:
        child: _Lane | _Node = lane
        while (above := child.above) is not None:
            above.ranks.pop(child.node, None)
            above.fresh = False
            child = above

    def _next(self, node: _Node) -> _Lane | None:
        """The lane below ``node`` whose turn it is; None where nobody waits there any more."""
        if not node.fresh:
            node.fresh = True
            best: tuple[Rank, _Lane] | None = None
            for child in node.children:
                lane = self._next(child) if isinstance(child, _Node) else child
                rank = self._rank(node, child, lane)
                if rank is not None and lane is not None and (best is None or rank < best[0]):
                    best = (rank, lane)
            node.lane = best[1] if best else None
        return node.lane

    def _rank(self, node: _Node, child: _Node | _Lane, lane: _Lane | None) -> Rank | None:
        if child.node in node.ranks:
            return node.ranks[child.node]
        line = lane.first() if lane is not None else None
        if line is None:
            rank = None
        elif len(node.children) == 1:
            rank = (0, 0, child.node)
        elif isinstance(child, _Lane):
            rank = (1, self._ledger.share(child.node), child.node)
        else:
            covered = self._ledger.within_guarantee(child.queue, gang_amounts(smallest(line.shape.gang)))
            share = self._ledger.share(child.node) // self._ledger.tree.specs[child.queue].weight
            rank = (0 if covered else 1, share, child.node)
        node.ranks[child.node] = rank
        return rank
