"""What every job of Polyaxon 0.x has: name, run policy, image and build."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from muster_core.models import (
    Build,
    Category,
    Convention,
    Framework,
    FrameworkOptions,
    Job,
    JobKind,
    Role,
    RunPolicy,
    Template,
)
from muster_core.models.problem_codes import Code
from muster_formats.limits import Limits
from muster_formats.locations import FieldLocations, JobField
from muster_formats.names import DNS_1035
from muster_formats.native import build_role
from muster_formats.polyaxon_v0.build import Image
from muster_formats.polyaxon_v0.env import Env
from muster_formats.polyaxon_v0.keys import NAME, ExperimentKeys, OpKeys
from muster_formats.polyaxon_v0.params import Params
from muster_formats.polyaxon_v0.roles import with_env
from muster_formats.registry import ReadContext
from muster_formats.schema import Section

_LONGEST_GIVEN = 40
_NO_NAME = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, kw_only=True)
class Op:
    """The document being read: ``kind``, its ``section`` with placeholders expanded, the job's identity, and its ``limits``."""

    kind: str
    section: Section
    name: str
    namespace: str
    params: Params
    limits: Limits

    def places(self) -> FieldLocations:
        """Return the source locations of the common fields."""
        cursor = self.section.cursor
        places = FieldLocations(cursor.location)
        places.record(JobField("name"), cursor.key_location("name"))
        key = "params" if self.section.at("params") else "declarations"
        places.record(JobField("parameters"), cursor.key_location(key), key)
        return places

    def job(
        self,
        roles: tuple[Role, ...],
        *,
        run: RunPolicy,
        category: Category,
        kind: JobKind = JobKind.BATCH,
        framework: Framework = Framework.PLAIN,
        model_dir: str = "",
        build: Build | None = None,
        built_by: str = "",
    ) -> Job:
        """Build the job of this document."""
        return Job(
            name=self.name,
            namespace=self.namespace,
            roles=roles,
            kind=kind,
            category=category,
            framework=framework,
            options=FrameworkOptions(
                model_dir=model_dir, conventions=(Convention.POLYAXON,), parameters=self.params.values
            ),
            build=build,
            built_by=built_by,
            format=NAME,
            run=run,
            annotations=_annotations(self.section, framework),
        )

    def build_job(self, image: Image) -> Job:
        """Build the job that builds the image."""
        build = image.build(self.name)
        return Job(
            name=f"{self.name}-build",
            namespace=self.namespace,
            roles=(build_role_of(build, image.env),),
            kind=JobKind.BUILD,
            category=Category.BUILDS,
            build=build,
            format=NAME,
            run=run_policy(image.env),
        )


def build_role_of(build: Build, env: Env) -> Role:
    """Build the role of a build with the settings of ``env``."""
    role = build_role(build)
    return msgspec.structs.replace(role, template=with_env(role.template, env))


def image_template(op: Op, image: Image) -> Template:
    """Build a template with the job's image, given or built."""
    return Template(image=image.build(op.name).image, env=image.tell)


def run_policy(env: Env, others: Iterable[Env] = ()) -> RunPolicy:
    """Read the run policy: the master's, with the highest back-off limit of all roles."""
    restarts = [one.restarts for one in (env, *others) if one.restarts is not None]
    return RunPolicy(
        backoff_limit=max(restarts) if restarts else RunPolicy().backoff_limit,
        active_deadline_s=env.timeout_s,
        ttl_s=env.ttl_s,
    )


def name_of(section: Section, kind: str, given: ReadContext) -> str:
    """Return the document's name, else the given one, else the kind, as a DNS-1035 label; warn if it was converted."""
    said = section.get(OpKeys.name)
    if said is None:
        return _dns_name(given.name[:_LONGEST_GIVEN], kind)
    name = _dns_name(said, kind)
    if name != said:
        words = f"the name is converted to {name}: a name must be {DNS_1035.description}"
        section.cursor.problems.warn(
            Code.BAD_NAME, section.cursor.key_location("name"), words, found=said, fix=f"write {name}"
        )
    return name


def _dns_name(text: str, kind: str) -> str:
    name = _NO_NAME.sub("-", text.lower()).strip("-")
    if not name:
        return kind
    return name if name[0].isalpha() else f"{kind}-{name}"


def _annotations(section: Section, framework: Framework) -> dict[str, str]:
    """Return description and tags as annotations."""
    labelled = (
        section.at("framework") if framework is Framework.PLAIN and section.table is ExperimentKeys else None
    )
    said = {
        "description": section.get(OpKeys.description) or "",
        "tags": ",".join(section.get(OpKeys.tags) or ()),
        "framework": (section.get(ExperimentKeys.framework) if labelled else None) or "",
    }
    return {f"polyaxon.com/{key}": value for key, value in said.items() if value}
