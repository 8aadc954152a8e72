"""A slot: demand, node rules and affinity of one replica."""

from __future__ import annotations

import msgspec

from muster_core.models import PlacementPolicy, Template
from muster_core.scheduling.placement.admission import Rules, rules_of
from muster_core.scheduling.placement.demand import Demand, demand_of
from muster_core.scheduling.placement.peers import Peer, peer_of


class Slot(msgspec.Struct, frozen=True, cache_hash=True):
    """Replicas of equal slots are interchangeable. ``peer`` is set if some replica of the gang has inter-replica affinity."""

    demand: Demand
    rules: Rules
    peer: Peer | None = None


def slot_of(template: Template, policy: PlacementPolicy, namespace: str) -> Slot:
    """Return the slot of a replica of ``template`` in a job with the placement ``policy``."""
    peer = peer_of(template, namespace)
    required = (policy.topology,) if policy.topology and policy.topology_required else ()
    return Slot(
        demand=demand_of(template.requests, together=policy.gpu_topology),
        rules=rules_of(template, labels=required, understood=peer.understood),
        peer=peer,
    )


def without_peer(slot: Slot) -> Slot:
    """Return the slot for a gang without inter-replica affinity, so that labels do not distinguish gangs."""
    return Slot(slot.demand, slot.rules)
