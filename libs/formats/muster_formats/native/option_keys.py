"""The native form's tables for what a framework is told and for builds."""

from __future__ import annotations

from dataclasses import dataclass

from muster_core.models import Convention
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.kinds import Choice, ListOf, Loose, MapOf, Raw, Text, Truth, Whole
from muster_formats.names import VARIABLE, Schema
from muster_formats.native.kinds import Environment
from muster_formats.option_rules import BACKENDS, MAX_PROCESSES, PROCESS_WORDS
from muster_formats.table import Field, Nested, Table

_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True)
class Processes:
    """A number of processes, or a word for one; which words there are is the framework's."""

    def read(self, cursor: Cursor) -> str | None:
        """The number or word as text."""
        value = cursor.node.value
        if isinstance(value, bool) or not isinstance(value, int | str):
            allowed = ", ".join((*PROCESS_WORDS, f"1 to {MAX_PROCESSES}"))
            cursor.error(Code.WRONG_TYPE, f"processes is one of {allowed}", allowed=allowed)
            return None
        return str(value)

    def schema(self) -> Schema:
        """A number or a word."""
        number: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_PROCESSES}
        return {"anyOf": [number, {"enum": list(PROCESS_WORDS)}]}


@dataclass(frozen=True)
class Backend:
    """Where agents may meet; which there are is a rule."""

    def read(self, cursor: Cursor) -> str | None:
        """The name."""
        return Text().read(cursor)

    def schema(self) -> Schema:
        """One of them."""
        return {"enum": list(BACKENDS)}


class RendezvousKeys(Table):
    """How the agents of an elastic job find each other."""

    backend = Field("backend", Backend(), "Where they meet: c10d unless said, etcd, etcd-v2.")
    host = Field("host", Text(), "Of the backend; the first worker unless said.")
    port = Field("port", Whole(1, 65535), "At host.")
    id = Field("id", Text(), "The rendezvous's id; the job's unless said.")
    conf = Field("conf", MapOf(None, Loose()), "Further settings of the backend.")
    max_restarts = Field(
        "maxRestarts", Whole(0, _MAX_INT32), "Restarts of a worker group within one replica."
    )
    standalone = Field("standalone", Truth(), "Whether each replica meets only itself; false unless said.")


class OptionKeys(Table):
    """What a framework is told beyond names and counts."""

    processes = Field(
        "processes",
        Processes(),
        "Processes (pytorch) or slots (mpi, horovod) of one replica: a number; auto, cpu, gpu.",
    )
    rendezvous = Field("rendezvous", Nested(RendezvousKeys), "For elastic pytorch and paddle jobs.")
    sparse_cluster = Field(
        "sparseCluster", Truth(), "Whether a tensorflow worker is told of itself and every ps only."
    )
    evaluator_in_cluster = Field(
        "evaluatorInCluster", Truth(), "Whether TF_CONFIG lists the evaluator with the others."
    )
    model_dir = Field("modelDir", Text(), "For TF_CONFIG.")
    conventions = Field(
        "conventions", ListOf(Choice(Convention)), "Whose variables the replicas get besides: polyaxon."
    )
    parameters = Field("parameters", Raw(), "Hyper-parameters that a convention passes on.")


class BuildKeys(Table):
    """What a job of kind build makes."""

    base = Field("base", Text(), "The image to begin with.")
    image = Field("image", Text(), "The image to make.")
    steps = Field("steps", ListOf(Text()), "Commands of a shell; the first that fails ends the build.")
    env = Field("env", Environment(MapOf(VARIABLE, Loose())), "Environment of the steps.")
