"""Build the roles of a Polyaxon 0.x experiment, named by framework and backend."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from muster_core.models import Framework, RestartPolicy, Role, Template
from muster_core.models.problem_codes import Code
from muster_formats.locations import FieldLocations, JobField
from muster_formats.pods import main_container_of
from muster_formats.polyaxon_v0.env import Env
from muster_formats.polyaxon_v0.keys import Backend
from muster_formats.polyaxon_v0.pod import pod_template
from muster_formats.polyaxon_v0.replicas import FRAMEWORKS, Replicas, Side
from muster_formats.problems import Problems

_KEEP_STILL = ("sleep", "infinity")
_REMOTE = frozenset({Framework.MPI, Framework.HOROVOD})
_CONTAINER = "main"


@dataclass(frozen=True, kw_only=True)
class Names:
    """The names of the roles."""

    master: str = "master"
    worker: str = "worker"
    ps: str = "ps"


def framework_of(word: str, backend: Backend) -> Framework:
    """Return the framework of an experiment with replicas."""
    framework = FRAMEWORKS.get(word, Framework.PLAIN)
    return Framework.MPI if backend is Backend.MPI and framework is not Framework.HOROVOD else framework


def names_of(framework: Framework, backend: Backend) -> Names:
    """Return the role names for a framework and backend."""
    if framework in _REMOTE:
        return Names(master="launcher")
    if framework is Framework.MXNET:
        return Names(master="scheduler", ps="server")
    if framework is Framework.TENSORFLOW and backend is Backend.KUBEFLOW:
        return Names(master="chief")
    return Names()


def one_replica(name: str, template: Template, env: Env, framework: Framework, policy: RestartPolicy) -> Role:
    """Build a role of one replica with the settings of ``env``."""
    return Role(
        name=name,
        replicas=1,
        min=1,
        max=1,
        template=with_env(template, env, framework),
        restart_policy=_policy(env, policy),
    )


def with_env(template: Template, env: Env, framework: Framework = Framework.PLAIN) -> Template:
    """Build the template with the settings of ``env``; what only a pod can have needs an image."""
    requests, limits = env.resources or (template.requests, template.limits)
    full = msgspec.structs.replace(
        template,
        env={**template.env, **env.tell},
        requests=requests,
        limits=limits,
        labels=env.labels,
        annotations=env.annotations,
        node_selector=env.node_selector,
        tolerations=env.tolerations,
        node_affinity=env.node_affinity or {},
    )
    if not env.kubernetes_only or not full.image:
        return full
    main = main_container_of(framework, {})
    port = (main.port,) if main.port else ()
    ported = msgspec.structs.replace(full, ports=(*full.ports, *port))
    return msgspec.structs.replace(ported, pod=pod_template(ported, env, main.container or _CONTAINER))


def side_roles(
    replicas: Replicas,
    template: Template,
    framework: Framework,
    names: Names,
    *,
    places: FieldLocations,
    problems: Problems,
) -> tuple[Role, ...]:
    """Build the roles of workers and parameter servers; a role that the framework does not have is a problem."""
    ps = replicas.ps
    if framework not in (Framework.TENSORFLOW, Framework.MXNET, Framework.PLAIN) and (
        ps.count or ps.overrides or ps.default != Env()
    ):
        spot = ps.count_spot if ps.count else ps.location
        words = f"{framework.value} has no parameter servers"
        problems.add(Code.CONFLICT, spot, words, found=str(ps.count), fix="remove n_ps, default_ps and ps")
        ps = replace(ps, count=0, overrides={}, default=Env())
    still = msgspec.structs.replace(template, command=_KEEP_STILL) if framework in _REMOTE else template
    sides = ((names.worker, "n_workers", replicas.worker, still), (names.ps, "n_ps", ps, template))
    roles: list[Role] = []
    for name, word, side, base in sides:
        if side.count or side.overrides:
            roles.append(_role(name, side, base, framework))
            _note(name, word, side, places)
        elif side.default != Env():
            words = f"{word} is not given, so this has no effect"
            problems.warn(Code.IGNORED, side.location, words, fix=f"add {word}")
    return tuple(roles)


def _role(name: str, side: Side, template: Template, framework: Framework) -> Role:
    return Role(
        name=name,
        replicas=side.count,
        min=side.count,
        max=side.count,
        template=with_env(template, side.default, framework),
        overrides={
            index: with_env(template, override.env.or_else(side.default), framework)
            for index, override in sorted(side.overrides.items())
        },
        restart_policy=_policy(side.default, RestartPolicy.NEVER),
    )


def _policy(env: Env, otherwise: RestartPolicy) -> RestartPolicy:
    if env.restart_policy is not None:
        return env.restart_policy
    return RestartPolicy.ON_FAILURE if env.restarts and otherwise is RestartPolicy.NEVER else otherwise


def _note(name: str, word: str, side: Side, places: FieldLocations) -> None:
    for field in ("replicas", "min", "max"):
        places.record(JobField(field, name), side.count_spot, word)
    for field in ("role", "template", "resources"):
        places.record(JobField(field, name), side.location)
    for index, override in side.overrides.items():
        places.record(JobField("overrides", name, index), override.index_spot)
        places.record(JobField("override", name, index), override.location)
        if override.env.resources:
            places.record(JobField("resources", name, index), override.location)
