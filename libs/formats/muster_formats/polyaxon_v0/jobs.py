"""What every job of Polyaxon 0.x has: name, run policy, image, and the build of its image."""

from __future__ import annotations

import hashlib
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
from muster_formats.polyaxon_v0.environment import V0Environment, read_env
from muster_formats.polyaxon_v0.fields import (
    NAME,
    V0BuildFieldFields,
    V0BuildFields,
    V0ExperimentFields,
    V0OpFields,
)
from muster_formats.polyaxon_v0.parameters import Params
from muster_formats.polyaxon_v0.roles import with_env
from muster_formats.registry import ReadContext
from muster_formats.schema import Section


@dataclass(frozen=True, kw_only=True)
class Image:
    """The ``base`` image, the build ``steps`` and the variables in it; ``env`` is the environment of the build job."""

    base: str = ""
    steps: tuple[str, ...] = ()
    variables: dict[str, str]
    env: V0Environment

    def build(self, name: str) -> Build:
        """Return what the build job of job ``name`` makes."""
        made_of = msgspec.json.encode((self.base, self.steps, sorted(self.variables.items())))
        tag = hashlib.sha256(made_of).hexdigest()[:12]
        image = f"{name}:{tag}" if self.steps else self.base
        return Build(base=self.base, image=image, steps=self.steps, env=self.variables)


def read_image(section: Section | None) -> Image:
    """Read the fields of a build from any table that has them."""
    if section is None:
        return Image(variables={}, env=V0Environment())
    if section.get(V0BuildFieldFields.image) is None and not section.given(V0BuildFieldFields.dockerfile):
        section.cursor.missing("image", "image is missing", "add image: python:3.11")
    language = section.get(V0BuildFieldFields.lang_env)
    spoken = dict.fromkeys(("LC_ALL", "LANG", "LANGUAGE"), language) if language else {}
    return Image(
        base=section.get(V0BuildFieldFields.image) or "",
        steps=tuple(section.get(V0BuildFieldFields.build_steps) or ()),
        variables={**spoken, **(section.get(V0BuildFieldFields.env_vars) or {})},
        env=read_env(section.get(V0BuildFields.environment)),
    )


_LONGEST_GIVEN = 40
_NO_NAME = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, kw_only=True)
class V0Operation:
    """The document being read: ``kind``, its ``section`` with placeholders expanded, the job's identity, and its ``limits``."""

    kind: str
    section: Section
    name: str
    namespace: str
    params: Params
    limits: Limits

    def locations(self) -> FieldLocations:
        """Return the source locations of the common fields."""
        cursor = self.section.cursor
        locations = FieldLocations(cursor.location)
        locations.record(JobField("name"), cursor.key_location("name"))
        key = "params" if self.section.at("params") else "declarations"
        locations.record(JobField("parameters"), cursor.key_location(key), key)
        return locations

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


def build_role_of(build: Build, env: V0Environment) -> Role:
    """Build the role of a build with the settings of ``env``."""
    role = build_role(build)
    return msgspec.structs.replace(role, template=with_env(role.template, env))


def image_template(op: V0Operation, image: Image) -> Template:
    """Build a template with the job's image, given or built."""
    return Template(image=image.build(op.name).image, env=image.variables)


def run_policy(env: V0Environment, others: Iterable[V0Environment] = ()) -> RunPolicy:
    """Read the run policy: the master's, with the highest back-off limit of all roles."""
    restarts = [one.restarts for one in (env, *others) if one.restarts is not None]
    return RunPolicy(
        backoff_limit=max(restarts) if restarts else RunPolicy().backoff_limit,
        active_deadline_s=env.timeout_s,
        ttl_s=env.ttl_s,
    )


def name_of(section: Section, kind: str, given: ReadContext) -> str:
    """Return the document's name, else the given one, else the kind, as a DNS-1035 label; warn if it was converted."""
    written = section.get(V0OpFields.name)
    if written is None:
        return _dns_name(given.name[:_LONGEST_GIVEN], kind)
    name = _dns_name(written, kind)
    if name != written:
        message = f"the name is converted to {name}: a name must be {DNS_1035.description}"
        section.cursor.problems.warn(
            Code.BAD_NAME, section.cursor.key_location("name"), message, found=written, fix=f"write {name}"
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
        section.at("framework")
        if framework is Framework.PLAIN and section.table is V0ExperimentFields
        else None
    )
    given = {
        "description": section.get(V0OpFields.description) or "",
        "tags": ",".join(section.get(V0OpFields.tags) or ()),
        "framework": (section.get(V0ExperimentFields.framework) if labelled else None) or "",
    }
    return {f"polyaxon.com/{key}": value for key, value in given.items() if value}
