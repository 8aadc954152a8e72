"""What a format is: how its documents are known, and who reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from muster_core.models import Job
from muster_formats.capabilities import Limits, no_limits
from muster_formats.cursor import Cursor
from muster_formats.table import Table


@dataclass(frozen=True, kw_only=True)
class Given:
    """What comes with a document and not in it: ``namespace`` and ``name`` are for jobs that say none; empty where there is none.

    ``limits`` are those that its jobs are held to.
    """

    namespace: str = ""
    name: str = ""
    limits: Limits = no_limits


Read = Callable[[Cursor, Given], tuple[Job, ...]]
"""Reads one part of a document into its jobs, in the order in which they start. What is wrong goes to the cursor's problems; the jobs
are of use only where nothing was."""


@dataclass(frozen=True, kw_only=True)
class Heading:
    """What a kind of document is known by: ``version_key`` (apiVersion, or version) holds ``version``, and ``kind`` the kind.

    A kind that is not ``taken`` is known all the same, so that its reader can say why.
    """

    version: str
    kind: str
    version_key: str = "apiVersion"
    taken: bool = True

    @property
    def words(self) -> str:
        """What it is called in messages."""
        version = self.version if self.version_key == "apiVersion" else f"{self.version_key} {self.version}"
        return f"{version} {self.kind}"


@dataclass(frozen=True, kw_only=True)
class Format(Heading):
    """One kind of document and its reader.

    ``name`` is what jobs call it (``Job.format``); several kinds may share one.
    """

    name: str
    read: Read
    table: type[Table] | None = None
