"""The bus over NATS JetStream: durable events, key-value stores with compare-and-set, ordered and shared readers, leases.

The exception type tells what a caller may conclude: after ``BusRejected`` nothing happened, after ``BusUnavailable`` the
outcome is unknown.
"""

from muster_bus.connection import Bus, BusSettings, Subscription
from muster_bus.dead_letters import DeadLetter, DeadLetters, ReplayFailed, Replays, dead_letter_stream
from muster_bus.errors import (
    BatchTooLarge,
    BusError,
    BusNotFound,
    BusRejected,
    BusUnavailable,
    Duplicate,
    Fenced,
    Poison,
    StreamFull,
    WrongSequence,
)
from muster_bus.group_commit import GroupCommit
from muster_bus.key_value import Entry, KeyChange, KeyValueStore, KeyWatch
from muster_bus.leadership import Leadership
from muster_bus.membership import Membership
from muster_bus.messages import Fence, Incoming, Outgoing, Published
from muster_bus.metrics import BusMetrics, NoMetrics
from muster_bus.ordered_consumer import StreamRange, read_last_values, read_range
from muster_bus.partition_reader import PartitionReader
from muster_bus.provision import BucketSpec, ConsumerSpec, StreamSpec, provision
from muster_bus.server import find_server, server_config
from muster_bus.work_queue import WorkQueue

__all__ = [
    "BatchTooLarge",
    "BucketSpec",
    "Bus",
    "BusError",
    "BusMetrics",
    "BusNotFound",
    "BusRejected",
    "BusSettings",
    "BusUnavailable",
    "ConsumerSpec",
    "DeadLetter",
    "DeadLetters",
    "Duplicate",
    "Entry",
    "Fence",
    "Fenced",
    "GroupCommit",
    "Incoming",
    "KeyChange",
    "KeyValueStore",
    "KeyWatch",
    "Leadership",
    "Membership",
    "NoMetrics",
    "Outgoing",
    "PartitionReader",
    "Poison",
    "Published",
    "ReplayFailed",
    "Replays",
    "StreamFull",
    "StreamRange",
    "StreamSpec",
    "Subscription",
    "WorkQueue",
    "WrongSequence",
    "dead_letter_stream",
    "find_server",
    "provision",
    "read_last_values",
    "read_range",
    "server_config",
]
