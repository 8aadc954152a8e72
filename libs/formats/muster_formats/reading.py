"""What a submission means to this version of Muster: the formats, and the limits of what there is; not the platform's defaults.

One door for spec-validator and for a check without a server, so that both say the same.
"""

from __future__ import annotations

from pathlib import PurePath

import msgspec

from muster_core.models import Job, Severity
from muster_formats import Parsed, parse
from muster_formats.capabilities import Limits, limits_of

_NAMELESS = ("-", "<")


def read_document(
    document: str | bytes, *, namespace: str = "", source_name: str = "", limits: Limits = limits_of
) -> Parsed:
    """What a document in any format means where these limits hold, or all that is wrong with it; see ``parse``.

    A document that need not say its name may have that of its file, ``source_name``.
    """
    name = "" if source_name.startswith(_NAMELESS) else PurePath(source_name).stem
    return parse(document, namespace=namespace, name=name, limits=limits)


def read_spec(job: Job, *, limits: Limits = limits_of) -> Parsed:
    """The same rules for a job that came as data."""
    from muster_formats.typed.check import check  # noqa: PLC0415 (documents do not need it)

    problems = check(job, limits=limits)
    if any(problem.severity is Severity.ERROR for problem in problems):
        return Parsed(jobs=(), problems=problems)
    return Parsed(jobs=(msgspec.structs.replace(job, warnings=job.warnings + problems),), problems=problems)
