"""The run policy of Kubeflow's kinds, wherever it stands: under ``spec.runPolicy``, or some of it under ``spec`` itself."""

from __future__ import annotations

from typing import TypeVar

from muster_core.models import CleanPodPolicy, RunPolicy
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.kubeflow.keys import RunPolicyKeys, SchedulingKeys
from muster_formats.places import Place, Places
from muster_formats.table import Field, Section

T = TypeVar("T")


class RunReader:
    """Reads the run policy from both places; the same key in both is a problem, since the two might differ."""

    def __init__(self, spec: Section, policy: Section | None) -> None:
        self._policy = policy
        under_spec = spec.table.fields()
        self._beside = {key: spec.at(key) for key in RunPolicyKeys.fields() if key in under_spec}
        for key, cursor in self._beside.items():
            if policy and cursor and (twice := policy.at(key)):
                words = f"{key} stands under spec and under spec.runPolicy"
                twice.error(Code.CONFLICT, words, fix="remove one of the two")
        self.scheduling = self.get(RunPolicyKeys.scheduling)

    def at(self, key: str) -> Cursor | None:
        """Where a key is given."""
        return (self._policy.at(key) if self._policy else None) or self._beside.get(key)

    def get(self, field: Field[T]) -> T | None:
        """A field of the run policy."""
        cursor = self.at(field.key)
        return field.kind.read(cursor) if cursor else None

    def scheduled(self, field: Field[T]) -> T | None:
        """A field of the scheduling policy."""
        return self.scheduling.get(field) if self.scheduling else None

    def min_available(self, places: Places) -> int | None:
        """The gang's floor over all replica types; its place is noted."""
        if self.scheduling:
            key = SchedulingKeys.min_available.key
            places.note(Place("min_available"), self.scheduling.cursor.key_spot(key), key)
        return self.scheduled(SchedulingKeys.min_available)

    def note(self, places: Places) -> None:
        """Remember where what the limits may speak of stands."""
        key = RunPolicyKeys.suspend.key
        if cursor := self.at(key):
            places.note(Place(key), cursor.spot)
        if self.scheduling:
            key = SchedulingKeys.queue.key
            places.note(Place(key), self.scheduling.cursor.key_spot(key))

    def policy(self, clean: CleanPodPolicy) -> RunPolicy:
        """The whole; ``clean`` unless said."""
        backoff = self.get(RunPolicyKeys.backoff_limit)
        return RunPolicy(
            backoff_limit=RunPolicy().backoff_limit if backoff is None else backoff,
            active_deadline_s=self.get(RunPolicyKeys.active_deadline),
            queue_deadline_s=self.scheduled(SchedulingKeys.schedule_timeout),
            ttl_s=self.get(RunPolicyKeys.ttl),
            clean_pod_policy=self.get(RunPolicyKeys.clean_pod_policy) or clean,
            suspend=self.get(RunPolicyKeys.suspend) or False,
        )
