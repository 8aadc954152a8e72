"""What may stand in a document of ``kind: Queue``: the reader and the JSON Schema are both made of these tables."""

from __future__ import annotations

import enum

from muster_core.models import QueuePolicy
from muster_core.quantities import parse_cpu
from muster_core.scheduling import MAX_WEIGHT
from muster_formats.kinds import Amount, Choice, Duration, Ignored, ListOf, Text, Truth, Whole
from muster_formats.names import DNS_1123
from muster_formats.native.keys import AmountKeys, ApiVersion
from muster_formats.rules import MAX_REPLICAS
from muster_formats.table import Field, Nested, Table

KIND = "Queue"

_NO_LABELS = "queues are found by their names"


class QueueWord(enum.StrEnum):
    """The one kind."""

    QUEUE = KIND


class ElasticWord(enum.StrEnum):
    """The elastic policies that there are."""

    MARGINAL_GAIN = "marginal_gain"
    DRAGON = "dragon"
    MAX_MIN = "max_min"
    NONE = "none"


class QueueAmountKeys(AmountKeys):
    """Amounts of resources that many replicas share: fractions of many GPUs add up to any number of them."""

    gpu = Field("gpu", Amount(parse_cpu, "8 or 2500m"), "GPUs: 500m is half of one.")


class QueueMetadataKeys(Table):
    """A queue's ``metadata``."""

    required = ("name",)
    name = Field("name", Text(DNS_1123), "The queue's name: a DNS label.")
    labels = Field("labels", Ignored(), "Labels.", idle=_NO_LABELS)
    annotations = Field("annotations", Ignored(), "Annotations.", idle=_NO_LABELS)


class QueueElasticKeys(Table):
    """How elastic jobs of the queue grow and shrink."""

    policy = Field("policy", Choice(ElasticWord), "For jobs that name none; the platform's unless said.")
    quiet = Field("quiet", Duration(), "Without scheduling or scaling, before jobs grow; 60s unless said.")
    cool_down = Field("coolDown", Duration(), "At least this long between two changes of a job.")
    step = Field("step", Whole(0, MAX_REPLICAS), "At most this many replicas at once; 0: no bound.")
    min_gain = Field(
        "minGain",
        Amount(parse_cpu, "0.25 or 250m"),
        "In workers: growth that speeds a job up by less is not worth it; 0.25 unless said.",
    )


class QueueSpecKeys(Table):
    """A queue's ``spec``."""

    parent = Field("parent", Text(), "The queue above; the top unless said.")
    guaranteed = Field("guaranteed", Nested(QueueAmountKeys), "What its jobs can always have.")
    limit = Field("limit", Nested(QueueAmountKeys), "What its jobs, with all below it, never exceed.")
    weight = Field("weight", Whole(1, MAX_WEIGHT), "Its share among its siblings; 1 unless said.")
    policy = Field("policy", Choice(QueuePolicy), "Who goes next within it; fifo_skip unless said.")
    starvation_after = Field(
        "starvationAfter", Duration(), "How long a job waits before room is kept for it; 30s unless said."
    )
    preempts_within = Field(
        "preemptsWithin",
        Truth(),
        "Whether a job may take room from lower priorities in it; false unless said.",
    )
    reclaims = Field(
        "reclaims", Truth(), "Whether it takes back from borrowers what it is guaranteed; true unless said."
    )
    namespaces = Field("namespaces", ListOf(Text(DNS_1123)), "Whose jobs wait here when they name no queue.")
    elastic = Field("elastic", Nested(QueueElasticKeys), "How its elastic jobs grow and shrink.")


class QueueKeys(Table):
    """A document of a queue."""

    required = ("apiVersion", "kind", "metadata")
    api_version = Field("apiVersion", Choice(ApiVersion), "The version of this form.")
    kind = Field("kind", Choice(QueueWord), "A queue.")
    metadata = Field("metadata", Nested(QueueMetadataKeys), "Which queue.")
    spec = Field("spec", Nested(QueueSpecKeys), "What it is; a queue like any other unless said.")
    status = Field(
        "status", Ignored(), "What Muster adds when it shows a queue; what was shown can be applied."
    )
