"""The bus over NATS JetStream: durable events, key-value stores with compare-and-set, ordered and shared readers, leases.

The exception type tells what a caller may conclude: after ``Refused`` nothing happened, after ``BusUnavailable`` the
outcome is unknown.
"""

from muster_bus._replays import Replays
from muster_bus.connection import Bus, BusSettings, Subscription
from muster_bus.dead_letters import DeadLetter, DeadLetters, ReplayFailed, dead_letter_stream
from muster_bus.errors import (
    BatchTooLarge,
    BusError,
    BusUnavailable,
    Duplicate,
    Fenced,
    NotFound,
    Poison,
    Refused,
    StreamFull,
    WrongSequence,
)
from muster_bus.feed import Feed
from muster_bus.group_commit import GroupCommit
from muster_bus.leadership import Leadership
from muster_bus.membership import Membership
from muster_bus.messages import Fence, Incoming, Outgoing, Published
from muster_bus.metrics import BusMetrics, NoMetrics
from muster_bus.provision import BucketSpec, ConsumerSpec, StreamSpec, provision
from muster_bus.reader import Stretch, read_last_values, read_stretch
from muster_bus.records import Entry, Records
from muster_bus.server import find_server, server_config
from muster_bus.watch import Change, Watch
from muster_bus.work_queue import Queue

__all__ = [
    "BatchTooLarge",
    "BucketSpec",
    "Bus",
    "BusError",
    "BusMetrics",
    "BusSettings",
    "BusUnavailable",
    "Change",
    "ConsumerSpec",
    "DeadLetter",
    "DeadLetters",
    "Duplicate",
    "Entry",
    "Feed",
    "Fence",
    "Fenced",
    "GroupCommit",
    "Incoming",
    "Leadership",
    "Membership",
    "NoMetrics",
    "NotFound",
    "Outgoing",
    "Poison",
    "Published",
    "Queue",
    "Records",
    "Refused",
    "ReplayFailed",
    "Replays",
    "StreamFull",
    "StreamSpec",
    "Stretch",
    "Subscription",
    "Watch",
    "WrongSequence",
    "dead_letter_stream",
    "find_server",
    "provision",
    "read_last_values",
    "read_stretch",
    "server_config",
]
