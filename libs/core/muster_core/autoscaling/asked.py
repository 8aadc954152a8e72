"""Earlier proposals: a proposal without effect is repeated only after the pool has changed.

The scheduler may have refused it, or may have been replaced before reading it: after a long time it is repeated in any
case.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from muster_core.autoscaling.proposal import ScaleProposal
from muster_core.events import ReplicaRef

_US = 1_000_000
_PATIENCE = 20
"""How many times longer an unanswered proposal waits when nothing has changed."""


class _What(NamedTuple):
    """What identifies a proposal."""

    attempt: int
    generation: int
    target: int
    removed: tuple[ReplicaRef, ...]
    beneficiary: str


class _Asked(NamedTuple):
    what: _What
    at: int
    version: int


class Asked:
    """The last proposal for each job. It may be repeated ``again_s`` seconds later if the pool has changed since."""

    def __init__(self, again_s: int = 15) -> None:
        self._again_us = again_s * _US
        self._asked: dict[str, _Asked] = {}

    def sift(
        self, proposals: Iterable[ScaleProposal], version: int, now: int
    ) -> tuple[list[ScaleProposal], int | None]:
        """Return the proposals to make now, and when (µs) others may be repeated; proposals that belong together are made
        together.

        ``version`` changes whenever free capacity changes.
        """
        together: dict[str, list[ScaleProposal]] = {}
        for one in proposals:
            together.setdefault(one.beneficiary or one.job_id, []).append(one)
        news: list[ScaleProposal] = []
        later: list[int] = []
        for group in together.values():
            due = min(self._due(one, version, now) for one in group)
            if due > now:
                later.append(due)
                continue
            news += group
            for one in group:
                self._asked[one.job_id] = _Asked(_what(one), now, version)
        return news, min(later, default=None)

    def keep(self, job_ids: Iterable[str]) -> None:
        """Forget all jobs but these."""
        kept = set(job_ids)
        self._asked = {job_id: asked for job_id, asked in self._asked.items() if job_id in kept}

    def _due(self, proposal: ScaleProposal, version: int, now: int) -> int:
        asked = self._asked.get(proposal.job_id)
        if asked is None or asked.what != _what(proposal):
            return now
        return asked.at + self._again_us * (1 if asked.version != version else _PATIENCE)


def _what(one: ScaleProposal) -> _What:
    return _What(one.attempt, one.generation, one.target, one.removed, one.beneficiary)
