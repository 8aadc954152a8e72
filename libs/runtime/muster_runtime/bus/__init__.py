"""The bus: durable facts, records by compare-and-set, ordered and shared readers, leases, over NATS JetStream.

Everything that a caller may conclude from a failure is in the type of the exception: a ``Refused`` did not happen, a
``BusUnavailable`` may have happened.
"""

from muster_runtime.bus._replays import Replays
from muster_runtime.bus.connection import Bus, BusSettings, Subscription
from muster_runtime.bus.dead_letters import DeadLetter, DeadLetters, ReplayFailed, dead_letter_stream
from muster_runtime.bus.errors import (
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
from muster_runtime.bus.feed import Feed
from muster_runtime.bus.group_commit import GroupCommit
from muster_runtime.bus.leadership import Leadership
from muster_runtime.bus.membership import Membership
from muster_runtime.bus.messages import Fence, Incoming, Outgoing, Published
from muster_runtime.bus.metrics import BusMetrics, NoMetrics
from muster_runtime.bus.provision import BucketSpec, ConsumerSpec, StreamSpec, provision
from muster_runtime.bus.reader import Stretch, read_last_values, read_stretch
from muster_runtime.bus.records import Entry, Records
from muster_runtime.bus.server import find_server, server_config
from muster_runtime.bus.watch import Change, Watch
from muster_runtime.bus.work_queue import Queue

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
