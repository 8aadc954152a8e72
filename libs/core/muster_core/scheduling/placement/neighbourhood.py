"""Replicas by topology domain, as far as affinity rules need: running ones and those just placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from muster_core.models import Node
from muster_core.scheduling.placement.admission import chosen_by_labels
from muster_core.scheduling.placement.capacity import Snapshot
from muster_core.scheduling.placement.peers import Evenly, Neighbours, Peer
from muster_core.scheduling.placement.slot import Slot


class Neighbourhood:
    """The replicas around those of ``slots``; check one with ``admit``, then ``add`` it."""

    def __init__(self, snapshot: Snapshot, slots: Iterable[Slot]) -> None:
        self._nodes = snapshot.nodes
        self._slots = tuple(dict.fromkeys(slot for slot in slots if slot.peer is not None))
        self._peers = tuple(dict.fromkeys(slot.peer for slot in self._slots if slot.peer is not None))
        asked = [one for peer in self._peers for one in _asked(peer)]
        self._counts: dict[Neighbours, Counter[str]] = {one: Counter() for one in asked}
        self._barred: dict[Peer, dict[str, set[str]]] = {peer: {} for peer in self._peers}
        self._eligible: dict[tuple[Slot, str], frozenset[str]] = {}
        for hold in snapshot.holds.values():
            if hold.peer is not None:
                self.add(hold.peer, hold.node)

    def add(self, peer: Peer, name: str) -> None:
        """Add a replica on node ``name``; on an unknown node it affects nothing."""
        node = self._nodes.get(name)
        if node is None:
            return
        for asked, counts in self._counts.items():
            domain = node.labels.get(asked.topology)
            if domain is not None and asked.include(peer):
                counts[domain] += 1
        for apart in peer.apart:
            domain = node.labels.get(apart.topology)
            for other in self._peers if domain is not None else ():
                if domain is not None and apart.include(other):
                    self._barred[other].setdefault(apart.topology, set()).add(domain)

    def admits(self, slot: Slot, node: Node) -> bool:
        """Return whether a replica of ``slot`` may go on ``node``: its own requirements and those of others about it."""
        peer = slot.peer
        if peer is None:
            return True
        barred = any(node.labels.get(label) in domains for label, domains in self._barred[peer].items())
        return (
            not barred
            and all(self._beside(one, peer, node) for one in peer.beside)
            and not any(self._number(one, node) for one in peer.apart)
            and all(self._even(one, slot, peer, node) for one in peer.evenly)
        )

    def wish(self, slot: Slot, node: Node) -> int:
        """Return the preference of a replica of ``slot`` for ``node`` because of others."""
        wishes = slot.peer.wishes if slot.peer else ()
        return sum(weight * self._number(one, node) for weight, one in wishes)

    def _number(self, asked: Neighbours, node: Node) -> int:
        domain = node.labels.get(asked.topology)
        return self._counts[asked][domain] if domain is not None else 0

    def _beside(self, asked: Neighbours, peer: Peer, node: Node) -> bool:
        """The first of replicas that require one another may go anywhere, as in Kubernetes."""
        if asked.topology not in node.labels:
            return False
        return self._number(asked, node) > 0 or (
            not any(self._counts[asked].values()) and asked.include(peer)
        )

    def _even(self, asked: Evenly, slot: Slot, peer: Peer, node: Node) -> bool:
        label = asked.among.topology
        if label not in node.labels:
            return False
        domains = self._domains(slot, label)
        counts = self._counts[asked.among]
        fewest = (
            min((counts[domain] for domain in domains), default=0) if len(domains) >= asked.min_domains else 0
        )
        return self._number(asked.among, node) + int(asked.among.include(peer)) - fewest <= asked.max_skew

    def _domains(self, slot: Slot, label: str) -> frozenset[str]:
        """Return the domains that count for the spread: those of nodes that pass the replica's selector and affinity."""
        domains = self._eligible.get((slot, label))
        if domains is None:
            allowed = (node for node in self._nodes.values() if chosen_by_labels(slot.rules, node))
            domains = frozenset(node.labels[label] for node in allowed if label in node.labels)
            self._eligible[slot, label] = domains
        return domains


def _asked(peer: Peer) -> Iterable[Neighbours]:
    yield from peer.beside
    yield from peer.apart
    yield from (one.among for one in peer.evenly)
    yield from (one for _, one in peer.wishes)
