"""Where a document defines the job's fields, for rules that check the job: a role's ``min`` may be ``spec.min-instances``."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster_core.models import Severity
from muster_core.models.problem_codes import Code
from muster_formats.limits import Limit
from muster_formats.problems import Problems, SourceLocation, shown


@dataclass(frozen=True)
class JobField:
    """A field of the job, of one of its roles, or of a role's override ``index``."""

    field: str
    role: str = ""
    index: int | None = None


@dataclass
class FieldLocations:
    """Source locations and names of job fields, which a reader records; ``root`` is the document's location."""

    root: SourceLocation
    _locations: dict[JobField, SourceLocation] = field(default_factory=dict[JobField, SourceLocation])
    _names: dict[JobField, str] = field(default_factory=dict[JobField, str])

    def record(self, job_field: JobField, location: SourceLocation, name: str = "") -> None:
        """Record a field's location, and its name in the document if that differs from the job's."""
        self._locations[job_field] = location
        if name:
            self._names[job_field] = name

    def find(self, job_field: JobField) -> SourceLocation:
        """Return the location of a field, else of the nearest recorded one: the role's field, the role, all roles, the document."""
        name, role = job_field.field, job_field.role
        nearer = (job_field, JobField(name, role), JobField("role", role), JobField("roles"))
        return next((self._locations[known] for known in nearer if known in self._locations), self.root)

    def name(self, job_field: JobField) -> str:
        """Return what the document calls a field."""
        return self._names.get(job_field, job_field.field)


class RuleReport:
    """Reports broken rules at the document's fields; a rule is not reported if a field that decides it already has an error."""

    def __init__(self, locations: FieldLocations, problems: Problems) -> None:
        self._locations = locations
        self._problems = problems

    def error(
        self,
        code: Code,
        job_field: JobField,
        message: str,
        *others: JobField,
        found: str = "",
        allowed: str = "",
        fix: str = "",
    ) -> None:
        """Report a broken rule at ``job_field``, unless it or one of the ``others`` that decide the rule has an error."""
        locations = [self._locations.find(one) for one in (job_field, *others)]
        if not any(self._problems.has_error_at(location.path) for location in locations):
            self._problems.add(code, locations[0], message, found=found, allowed=allowed, fix=fix)

    def warn_ignored(self, job_field: JobField, why: str, *, fix: str = "") -> None:
        """Warn that a field has no effect."""
        message = f"{self._locations.name(job_field)} has no effect: {why}"
        self._problems.warn(Code.IGNORED, self._locations.find(job_field), message, fix=fix)

    def limit(self, limit: Limit) -> None:
        """Report a limit, unless its field has an error."""
        job_field = JobField(limit.field, limit.role)
        location, name = self._locations.find(job_field), self._locations.name(job_field)
        if self._problems.has_error_at(location.path):
            return
        warning = Code.KUBERNETES_ONLY if limit.kubernetes_only else Code.IGNORED
        self._problems.add(
            Code.UNSUPPORTED if limit.severity is Severity.ERROR else warning,
            location,
            limit.message.replace("{field}", name),
            severity=limit.severity,
            found=shown(limit.found) if limit.found else "",
            fix=limit.fix.replace("{field}", name),
        )

    def name(self, field: str, role: str = "") -> str:
        """Return what the document calls a field."""
        return self._locations.name(JobField(field, role))
