"""The bus over NATS JetStream: durable events, key-value stores with compare-and-set, ordered and shared readers, leases.

The exception type tells what a caller may conclude: after ``BusRejected`` nothing happened, after ``BusUnavailable`` the
outcome is unknown.

A service opens its bus with ``service_bus`` and uses one ``connection``: it publishes events (also in fenced batches and groups),
reads them with a ``work_queue``, a ``partition_reader`` or an ``ordered_consumer``, and keeps records in a ``key_value`` store.
``lease``, ``leadership``, ``membership`` and ``partition_owner`` decide which instance works on what. ``provision`` and
``catalogue_reconciler`` create streams, buckets and consumers; ``dead_letters`` keep what cannot be handled. ``broker_clock``,
``pause_detector``, ``write_probe`` and ``disk`` observe the broker and this process. ``metrics`` is what is counted,
``pending_messages`` and ``prometheus`` report it. Modules with a leading underscore speak the broker's protocol.
"""

from muster_bus.broker_clock import BrokerClock as BrokerClock
from muster_bus.connection import Bus as Bus, BusSettings as BusSettings, Subscription as Subscription
from muster_bus.dead_letters import (
    DeadLetter as DeadLetter,
    DeadLetters as DeadLetters,
    ReplayFailed as ReplayFailed,
    Replays as Replays,
    dead_letter_stream as dead_letter_stream,
)
from muster_bus.errors import (
    BatchTooLarge as BatchTooLarge,
    BusError as BusError,
    BusMissing as BusMissing,
    BusNotFound as BusNotFound,
    BusRejected as BusRejected,
    BusUnavailable as BusUnavailable,
    Duplicate as Duplicate,
    Fenced as Fenced,
    Poison as Poison,
    StreamFull as StreamFull,
    WriteInProcess as WriteInProcess,
    WrongSequence as WrongSequence,
)
from muster_bus.group_commit import GroupCommit as GroupCommit
from muster_bus.key_value import (
    Entry as Entry,
    HeaderWatch as HeaderWatch,
    KeyChange as KeyChange,
    KeyValueStore as KeyValueStore,
    KeyWatch as KeyWatch,
)
from muster_bus.last_answer import until_answered as until_answered
from muster_bus.leadership import Leadership as Leadership
from muster_bus.membership import Membership as Membership
from muster_bus.messages import (
    Fence as Fence,
    Incoming as Incoming,
    Outgoing as Outgoing,
    Published as Published,
)
from muster_bus.metrics import BusMetrics as BusMetrics
from muster_bus.ordered_consumer import (
    StreamRange as StreamRange,
    read_last_values as read_last_values,
    read_range as read_range,
)
from muster_bus.partition_owner import PartitionOwner as PartitionOwner
from muster_bus.partition_reader import PartitionReader as PartitionReader
from muster_bus.provision import (
    BucketSpec as BucketSpec,
    ConsumerSpec as ConsumerSpec,
    StreamSpec as StreamSpec,
    held_bytes as held_bytes,
    provision as provision,
    put_bucket as put_bucket,
    put_consumer as put_consumer,
    put_stream as put_stream,
)
from muster_bus.server import find_server as find_server, server_config as server_config
from muster_bus.work_queue import WorkQueue as WorkQueue
