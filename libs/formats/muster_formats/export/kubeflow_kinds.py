"""What each of Kubeflow's kinds but TFJob writes besides what all do."""

from __future__ import annotations

from msgspec.structs import replace

from muster_core.frameworks.peers import gpus_of
from muster_core.models import Framework, Job, Rendezvous, Role
from muster_formats.export.kubeflow import Form
from muster_formats.export.losses import Losses
from muster_formats.kubeflow.elastic import ConfKeys, ElasticKeys, RendezvousKeys
from muster_formats.kubeflow.jaxjob import JAXJOB
from muster_formats.kubeflow.mpijob import MPIJOB, SharedKeys
from muster_formats.kubeflow.mxjob import MXJOB
from muster_formats.kubeflow.mxjob import SpecKeys as MXKeys
from muster_formats.kubeflow.paddlejob import PADDLEJOB
from muster_formats.kubeflow.paddlejob import SpecKeys as PaddleKeys
from muster_formats.kubeflow.pytorchjob import PYTORCHJOB
from muster_formats.kubeflow.pytorchjob import SpecKeys as TorchKeys
from muster_formats.kubeflow.roles import WORKER
from muster_formats.kubeflow.xgboostjob import XGBOOSTJOB
from muster_formats.names import Schema
from muster_formats.yaml_builder import Json

_RENDEZVOUS = "spec.options.rendezvous"
_TUNERS = frozenset({"tunertracker", "tunerserver", "tuner"})
_MODES = {False: "MXTrain", True: "MXTune"}


def _torch(job: Job, bounded: bool, losses: Losses) -> Schema:
    _tell_unbounded(job, bounded, losses)
    return {TorchKeys.processes.key: job.options.processes} if job.options.processes else {}


def _torch_bounds(job: Job, worker: Role) -> Schema:
    rendezvous = job.options.rendezvous or Rendezvous()
    conf: list[Json] = [
        {ConfKeys.key.key: key, ConfKeys.value.key: value} for key, value in rendezvous.conf.items()
    ]
    said: Schema = {
        RendezvousKeys.host.key: rendezvous.host,
        RendezvousKeys.port.key: rendezvous.port,
        RendezvousKeys.id.key: rendezvous.job_id,
        RendezvousKeys.conf.key: conf,
        RendezvousKeys.standalone.key: rendezvous.standalone,
    }
    given: Schema = {key: value for key, value in said.items() if value not in (None, "", [], False)}
    return {
        TorchKeys.elastic.key: {
            RendezvousKeys.backend.key: rendezvous.backend,
            **_bounds(job, worker),
            **given,
        }
    }


def _paddle(job: Job, bounded: bool, losses: Losses) -> Schema:
    _tell_unbounded(job, bounded, losses)
    rendezvous = job.options.rendezvous
    if rendezvous and replace(rendezvous, max_restarts=None) != Rendezvous():
        losses.lose(_RENDEZVOUS, "of it, only maxRestarts can be said")
    return {}


def _paddle_bounds(job: Job, worker: Role) -> Schema:
    return {PaddleKeys.elastic.key: _bounds(job, worker)}


def _bounds(job: Job, worker: Role) -> Schema:
    rendezvous = job.options.rendezvous
    said: Schema = {ElasticKeys.min_replicas.key: worker.min, ElasticKeys.max_replicas.key: worker.max}
    if rendezvous and rendezvous.max_restarts is not None:
        said[ElasticKeys.max_restarts.key] = rendezvous.max_restarts
    return said


def _tell_unbounded(job: Job, bounded: bool, losses: Losses) -> None:
    if job.options.rendezvous and not bounded:
        losses.lose(_RENDEZVOUS, "an elastic policy needs workers")


def _meets(job: Job) -> bool:
    return job.options.rendezvous is not None


def _mpi(job: Job, bounded: bool, losses: Losses) -> Schema:
    del bounded, losses
    said = job.options.processes
    return {SharedKeys.slots.key: int(said) if said else max(gpus_of(job, WORKER, 0), 1)}


def _mxnet(job: Job, bounded: bool, losses: Losses) -> Schema:
    del bounded
    tuners = {role.name in _TUNERS for role in job.roles if role.max > 0}
    if len(tuners) > 1:
        losses.refuse("spec.roles", "it either trains or tunes, and these roles do both")
    return {MXKeys.mode.key: _MODES[True in tuners]}


FORMS = (
    Form(
        kind=PYTORCHJOB,
        frameworks=(Framework.PYTORCH,),
        says=frozenset({"spec.options.processes", _RENDEZVOUS}),
        own=_torch,
        bounds=_torch_bounds,
        wants_bounds=_meets,
    ),
    Form(
        kind=MPIJOB,
        frameworks=(Framework.MPI, Framework.HOROVOD),
        says=frozenset({"spec.options.processes"}),
        own=_mpi,
    ),
    Form(kind=XGBOOSTJOB, frameworks=(Framework.XGBOOST,)),
    Form(
        kind=PADDLEJOB,
        frameworks=(Framework.PADDLE,),
        says=frozenset({_RENDEZVOUS}),
        own=_paddle,
        bounds=_paddle_bounds,
        wants_bounds=_meets,
    ),
    Form(kind=JAXJOB, frameworks=(Framework.JAX,)),
    Form(kind=MXJOB, frameworks=(Framework.MXNET,), own=_mxnet),
)
"""How they are written."""
