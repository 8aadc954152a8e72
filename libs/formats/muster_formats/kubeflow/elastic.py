"""``elasticPolicy`` of PyTorchJob and PaddleJob: how few and how many workers, and how their agents find each other.

A bound that is not given copies the other one; where neither is, both are ``Worker.replicas``: such a job is elastic, its members may come
back, and it never has another number of them.
"""

from __future__ import annotations

from muster_core.models import Rendezvous
from muster_formats.cursor import warn_idle
from muster_formats.kinds import Ignored, ListOf, Loose, Text, Truth, Whole
from muster_formats.kubeflow.keys import MAX_INT32
from muster_formats.kubeflow.roles import Bounds
from muster_formats.native.option_keys import Backend, Processes
from muster_formats.places import Place, Places
from muster_formats.rules import MAX_REPLICAS
from muster_formats.table import Field, Nested, Section, Table


class ElasticKeys(Table):
    """``elasticPolicy`` of a PaddleJob, and what PyTorchJob's has in common with it."""

    min_replicas = Field("minReplicas", Whole(0, MAX_REPLICAS), "At least so many workers.")
    max_replicas = Field("maxReplicas", Whole(0, MAX_REPLICAS), "At most so many workers.")
    max_restarts = Field("maxRestarts", Whole(0, MAX_INT32), "Restarts of a worker group within one replica.")
    metrics = Field(
        "metrics",
        Ignored(),
        "Load to scale by.",
        idle="the queue's elastic policy decides when the job grows",
    )


class ConfKeys(Table):
    """One setting of the rendezvous."""

    key = Field("key", Text(), "Which setting.")
    value = Field("value", Loose(), "Its value.")


class RendezvousKeys(ElasticKeys):
    """``elasticPolicy`` of a PyTorchJob."""

    backend = Field("rdzvBackend", Backend(), "Where the agents meet: c10d unless said, etcd, etcd-v2.")
    host = Field("rdzvHost", Text(), "The backend's host; the first worker unless said.")
    port = Field("rdzvPort", Whole(1, 65535), "The port at rdzvHost.")
    id = Field("rdzvId", Loose(), "The rendezvous's id; the job's unless said.")
    conf = Field("rdzvConf", ListOf(Nested(ConfKeys)), "Further settings of the backend.")
    standalone = Field("standalone", Truth(), "Whether each replica meets only itself.")
    processes = Field("nProcPerNode", Processes(), "As spec.nprocPerNode, by its old name.")


def read_bounds(section: Section) -> Bounds:
    """The workers' bounds."""
    low, high = section.get(ElasticKeys.min_replicas), section.get(ElasticKeys.max_replicas)
    return Bounds(
        section=section,
        low_key=ElasticKeys.min_replicas.key,
        high_key=ElasticKeys.max_replicas.key,
        low=high if low is None else low,
        high=low if high is None else high,
        required=True,
    )


def read_rendezvous(section: Section, places: Places) -> Rendezvous:
    """How the agents of a PyTorchJob meet; the places are noted."""
    for field, declared in (("backend", RendezvousKeys.backend), ("conf", RendezvousKeys.conf)):
        places.note(Place(field), section.cursor.key_spot(declared.key), declared.key)
    backend, host = section.get(RendezvousKeys.backend), section.get(RendezvousKeys.host)
    if not host and (port := section.at(RendezvousKeys.port.key)):
        why = "without rdzvHost the agents meet at the first worker, on its own port"
        warn_idle(port, RendezvousKeys.port.key, why, fix="add rdzvHost, or remove it")
    return Rendezvous(
        backend=Rendezvous().backend if backend is None else backend,
        host=host or "",
        port=section.get(RendezvousKeys.port),
        job_id=section.get(RendezvousKeys.id) or "",
        conf=_conf(section.get(RendezvousKeys.conf)),
        max_restarts=section.get(RendezvousKeys.max_restarts),
        standalone=section.get(RendezvousKeys.standalone) or False,
    )


def _conf(settings: list[Section] | None) -> dict[str, str]:
    conf: dict[str, str] = {}
    for setting in settings or ():
        if (key := setting.get(ConfKeys.key)) is None:
            setting.cursor.missing("key", "a setting has a key")
        else:
            conf[key] = setting.get(ConfKeys.value) or ""
    return conf
