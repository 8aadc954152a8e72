"""Progress reports of training programs, published as events: by one replica of each job, at a bounded rate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Mapping, Sequence

from muster_bus import Bus, BusUnavailable
from muster_core.events import ProgressReported
from muster_core.models import JobRecord
from muster_events.catalogue import POD_LAUNCHER
from muster_events.codec import job_message
from muster_events.subjects import partition_of
from muster_runtimes import ProgressReader, ProgressReport
from muster_service.logs import fields

log = logging.getLogger(__name__)


class ProgressReports:
    """Reads changed progress every ``every_s`` seconds; ``records`` are those of this instance's jobs."""

    def __init__(
        self, *, bus: Bus, reader: ProgressReader, records: Mapping[str, JobRecord], every_s: float
    ) -> None:
        self._bus = bus
        self._reader = reader
        self._records = records
        self._every_s = every_s

    async def run(self, partitions: Container[int]) -> None:
        """Report until cancelled, for the jobs of ``partitions``."""
        while True:
            await asyncio.sleep(self._every_s)
            by_job: dict[str, list[ProgressReport]] = {}
            for seen in await self._reader.progress():
                if partition_of(seen.replica.job_id) in partitions:
                    by_job.setdefault(seen.replica.job_id, []).append(seen)
            for job_id, reports in by_job.items():
                record = self._records.get(job_id)
                if record is not None and not record.terminal:
                    try:
                        await self._publish(record, reports)
                    except BusUnavailable as error:
                        # The next report replaces this one.
                        log.info("progress cannot be published: %s", error, extra=fields(job=record.name))

    async def _publish(self, record: JobRecord, reports: Sequence[ProgressReport]) -> None:
        current = [seen for seen in reports if seen.replica.attempt == record.attempt]
        if not current:
            return
        latest = record.progress
        reporter = (latest.role, latest.index) if latest and latest.attempt == record.attempt else None
        seen = min(current, key=lambda one: (_key(one) != reporter, _key(one)))
        event = ProgressReported(
            role=seen.replica.role,
            index=seen.replica.index,
            attempt=seen.replica.attempt,
            step=seen.step,
            at=seen.at,
            metrics=dict(seen.metrics),
        )
        await self._bus.publish_once(
            job_message(record.job_id, event, source=POD_LAUNCHER, traceparent=record.trace)
        )


def _key(seen: ProgressReport) -> tuple[str, int]:
    return (seen.replica.role, seen.replica.index)
