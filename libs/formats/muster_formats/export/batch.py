"""``Job`` -> Kubernetes' own Job: one role of equal replicas, all of which run at once."""

from __future__ import annotations

import dataclasses
from typing import cast

from muster_core.models import Framework, Job
from muster_formats.batch import API_VERSION, INDEX, KIND, ROLE, SpecKeys
from muster_formats.export.details import tell_details
from muster_formats.export.losses import Losses
from muster_formats.export.one_role import restarts, the_role
from muster_formats.export.pods import main_container, write_metadata, write_pod_template
from muster_formats.names import Schema
from muster_formats.pods.framework_pods import main_of
from muster_formats.typed.raw import Raw
from muster_formats.yaml_builder import Json


def write_batchjob(job: Job, losses: Losses) -> Schema:
    """The document of a job; what cannot be said of it is told."""
    tell_details(job, frozenset(), losses)
    if job.framework is not Framework.PLAIN:
        why = f"its replicas know nothing of each other, and this job is of {job.framework.value}"
        losses.refuse("spec.framework", why)
    role = the_role(job, ROLE, losses)
    if role is None:
        return {}
    below = losses.below(f"spec.roles.{role.name}")
    indexed = INDEX.items() <= role.template.env.items()
    main = dataclasses.replace(main_of(Framework.PLAIN, job.annotations), variables=INDEX if indexed else {})
    template = write_pod_template(role.template, main, below)
    pod = cast("Raw", template["spec"])
    again = restarts(role, losses)
    pod["restartPolicy"] = "OnFailure" if again else "Never"
    if indexed:
        _take_out_index(main_container(pod, main))
    spec: Schema = {
        SpecKeys.completions.key: role.replicas,
        SpecKeys.parallelism.key: role.replicas,
        SpecKeys.backoff_limit.key: job.run.backoff_limit if again else 0,
    }
    if indexed:
        spec[SpecKeys.mode.key] = "Indexed"
    if job.run.active_deadline_s is not None:
        spec[SpecKeys.active_deadline.key] = job.run.active_deadline_s
    if job.run.ttl_s is not None:
        spec[SpecKeys.ttl.key] = job.run.ttl_s
    if job.run.suspend:
        spec[SpecKeys.suspend.key] = True
    spec[SpecKeys.template.key] = template
    metadata = write_metadata(job, job.annotations)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def _take_out_index(container: Raw) -> None:
    """Take out the variables that an Indexed Job gives by itself."""
    variables = cast("list[Json]", container.get("env") or [])
    container["env"] = [one for one in variables if not (isinstance(one, dict) and one.get("name") in INDEX)]
