"""Kubeflow's TrainJob (``trainer.kubeflow.org/v1alpha1``), where all that is needed stands in it.

A TrainJob names a runtime, which is an object of a cluster. Muster reads documents, so it takes the two runtimes whose meaning is a
framework and nothing else, with the image and the command of the job itself; every other one is refused with what to write instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from muster_core.models import Framework, FrameworkOptions, Job, RestartPolicy, Role, RunPolicy, Template
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.format import Format, Given
from muster_formats.metadata import Metadata, MetadataKeys, read_metadata
from muster_formats.places import Place, Places
from muster_formats.pods.framework_pods import main_of
from muster_formats.pods.template import read_pod_template
from muster_formats.problems import shown
from muster_formats.rules import apply_rules
from muster_formats.table import Section
from muster_formats.trainjob.keys import (
    API_VERSION,
    KIND,
    NAME,
    DocumentKeys,
    RuntimeRefKeys,
    SpecKeys,
    TrainerKeys,
)
from muster_formats.trainjob.pod import NODE, pod_template

RUNTIMES: Mapping[str, Framework] = {
    "torch-distributed": Framework.PYTORCH,
    "jax-distributed": Framework.JAX,
}
"""The runtimes that are known: those of the trainer's release that say which framework it is, and nothing else."""

ROLE = "worker"
"""The one role of a TrainJob."""

_ELSEWHERE = {
    "deepspeed-distributed": "write it as an MPIJob (kubeflow.org/v1)",
    "mlx-distributed": "write it as an MPIJob (kubeflow.org/v1)",
    "xgboost-distributed": "write it as an XGBoostJob (kubeflow.org/v1)",
}
_CLUSTER_RUNTIME = "ClusterTrainingRuntime"
_GROUP = "trainer.kubeflow.org"
BACKOFF = 6
"""Failures that the runtimes forgive."""


def read_trainjob(cursor: Cursor, given: Given) -> tuple[Job, ...]:
    """Read a TrainJob; see ``Read``."""
    document = Section(cursor, DocumentKeys)
    header = document.get(DocumentKeys.metadata)
    metadata = read_metadata(document, header)
    places = Places(cursor.spot)
    places.note(Place("name"), (header or document).cursor.key_spot(MetadataKeys.name.key))
    spec = document.get(DocumentKeys.spec)
    if spec is None:
        cursor.missing("spec", "a TrainJob has a spec with runtimeRef and trainer")
        return ()
    framework = _framework(spec)
    trainer = spec.get(SpecKeys.trainer)
    if trainer is None:
        spec.cursor.missing("trainer", "a TrainJob has a trainer", "add trainer: {image: ..., numNodes: 1}")
    if trainer is None:
        return ()
    places.note(Place("suspend"), spec.cursor.key_spot(SpecKeys.suspend.key))
    processes = trainer.get(TrainerKeys.processes)
    places.note(
        Place("processes"), trainer.cursor.key_spot(TrainerKeys.processes.key), TrainerKeys.processes.key
    )
    # What is wrong with the trainer is told beside the runtime that is not known.
    role = _role(spec, trainer, framework or Framework.PLAIN, metadata, places)
    if framework is None:
        return ()
    job = Job(
        name=metadata.name,
        namespace=metadata.namespace or given.namespace or "default",
        labels={**metadata.labels, **(spec.get(SpecKeys.labels) or {})},
        annotations={**metadata.annotations, **(spec.get(SpecKeys.annotations) or {})},
        framework=framework,
        options=FrameworkOptions(processes=processes or ""),
        format=NAME,
        roles=(role,),
        run=RunPolicy(
            backoff_limit=BACKOFF,
            active_deadline_s=spec.get(SpecKeys.deadline),
            suspend=spec.get(SpecKeys.suspend) or False,
        ),
    )
    apply_rules(job, places, cursor.problems, given.limits)
    return (job,)


FORMATS = (Format(name=NAME, version=API_VERSION, kind=KIND, read=read_trainjob, table=DocumentKeys),)
"""What is read here."""


def _framework(spec: Section) -> Framework | None:
    """Which framework the runtime stands for; ``None`` after saying that it is not known."""
    names = ", ".join(RUNTIMES)
    runtime = spec.get(SpecKeys.runtime)
    if runtime is None:
        spec.cursor.missing(
            "runtimeRef", "a TrainJob has a runtimeRef", f"add runtimeRef: {{name: {next(iter(RUNTIMES))}}}"
        )
        return None
    name, at = runtime.get(RuntimeRefKeys.name), runtime.at(RuntimeRefKeys.name.key)
    if name is None or at is None:
        runtime.cursor.missing("name", "a runtime has a name", f"write one of {names}")
        return None
    of_cluster = (runtime.get(RuntimeRefKeys.kind) or _CLUSTER_RUNTIME) == _CLUSTER_RUNTIME
    of_trainer = (runtime.get(RuntimeRefKeys.group) or _GROUP) == _GROUP
    if name in RUNTIMES and of_cluster and of_trainer:
        return RUNTIMES[name]
    fix = (
        f"name {names.replace(', ', ' or ')}, without kind, and write all that the runtime said under trainer"
    )
    known = of_cluster and of_trainer
    at.error(
        Code.NOT_TAKEN,
        f"the runtime {shown(name)} is an object of a cluster, and what it says is not known here",
        allowed=names,
        fix=_ELSEWHERE.get(name, fix) if known else fix,
    )
    return None


def _role(spec: Section, trainer: Section, framework: Framework, metadata: Metadata, places: Places) -> Role:
    key = TrainerKeys.nodes.key
    for place in ("replicas", "min", "max"):
        places.note(Place(place, ROLE), trainer.cursor.key_spot(key), key)
    places.note(Place("roles"), trainer.cursor.key_spot(key))
    for place in ("role", "template", "resources"):
        places.note(Place(place, ROLE), trainer.cursor.spot)
    if trainer.get(TrainerKeys.image) is None:
        _tell_of_image(spec, trainer)
    nodes = trainer.get(TrainerKeys.nodes)
    count = 1 if nodes is None else nodes
    main = main_of(framework, metadata.annotations, container=NODE)
    template: Template = read_pod_template(pod_template(spec, trainer), main)
    return Role(
        name=ROLE,
        replicas=count,
        min=count,
        max=count,
        template=template,
        restart_policy=RestartPolicy.ON_FAILURE,
    )


def _tell_of_image(spec: Section, trainer: Section) -> None:
    """Say that the trainer has no image: at the trainer, since there is no such line."""
    path = trainer.cursor.below(TrainerKeys.image.key)
    if not trainer.cursor.problems.at(path):
        spot = dataclasses.replace(spec.cursor.key_spot(SpecKeys.trainer.key), path=path)
        words = "the runtime's own image is not known here"
        fix = "add image: that of the runtime, or your own"
        trainer.cursor.problems.add(Code.REQUIRED, spot, words, fix=fix)
