"""The queues of a pool as a tree, and which of them a job waits in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster_core.models import DEFAULT_QUEUE, Job, JobRecord, QueuePolicy, QueueSpec

Account = tuple[str, str]
"""Whose room it is: the queue and, where the queue shares among its submitters, the submitter, else the empty string."""


class QueueTree:
    """The queues of valid ``specs`` (see ``problems_of``), ``default`` among them whether it was applied or not."""

    def __init__(self, specs: Iterable[QueueSpec] = ()) -> None:
        applied = {spec.name: spec for spec in specs}
        self._configured = bool(applied)
        self._specs = dict(sorted({DEFAULT_QUEUE: QueueSpec(name=DEFAULT_QUEUE), **applied}.items()))
        self._of_namespace = {name: spec.name for spec in self._specs.values() for name in spec.namespaces}
        self._paths = {name: self._path(name) for name in self._specs}

    @property
    def specs(self) -> Mapping[str, QueueSpec]:
        """Every queue by name, sorted."""
        return self._specs

    def path(self, queue: str) -> tuple[str, ...]:
        """The queue and its ancestors, from the top down."""
        return self._paths[queue]

    def children(self, parent: str) -> tuple[str, ...]:
        """The queues right below ``parent`` (empty: at the top), sorted."""
        return tuple(name for name, spec in self._specs.items() if spec.parent == parent)

    def queue_of(self, job: Job) -> str | None:
        """The queue that ``job`` waits in, or None where it names one that is not there.

        As long as no queue was ever applied there is one line for all, whatever they name.
        """
        if not self._configured:
            return DEFAULT_QUEUE
        if job.queue:
            return job.queue if job.queue in self._specs else None
        listed = self._of_namespace.get(job.namespace)
        return listed or (job.namespace if job.namespace in self._specs else DEFAULT_QUEUE)

    def account_of(self, record: JobRecord) -> Account:
        """The account of a validated job; ``default`` answers for jobs whose queue is gone."""
        queue = (self.queue_of(record.job) if record.job else None) or DEFAULT_QUEUE
        return (queue, record.submitter if self._specs[queue].policy is QueuePolicy.DRF else "")

    def _path(self, name: str) -> tuple[str, ...]:
        spec = self._specs[name]
        return (*self._path(spec.parent), name) if spec.parent else (name,)
