"""What one replica asks: so much room, on nodes of such a kind, among such neighbours."""

from __future__ import annotations

import msgspec

from muster_core.models import PlacementPolicy, Template
from muster_core.scheduling.placement.admission import Rules, rules_of
from muster_core.scheduling.placement.demand import Demand, demand_of
from muster_core.scheduling.placement.peers import Peer, peer_of


class Slot(msgspec.Struct, frozen=True, cache_hash=True):
    """Replicas of equal slots are interchangeable. ``peer`` is given where some replica of the gang asks something of others."""

    demand: Demand
    rules: Rules
    peer: Peer | None = None


def slot_of(template: Template, policy: PlacementPolicy, namespace: str) -> Slot:
    """What a replica of ``template`` asks in a job that is placed by ``policy``."""
    peer = peer_of(template, namespace)
    required = (policy.topology,) if policy.topology and policy.topology_required else ()
    return Slot(
        demand=demand_of(template.requests, together=policy.gpu_topology),
        rules=rules_of(template, labels=required, understood=peer.understood),
        peer=peer,
    )


def without_peer(slot: Slot) -> Slot:
    """The same for a gang in which nobody asks anything of others, so that labels do not make gangs different."""
    return Slot(slot.demand, slot.rules)
