"""Time after SIGKILL until a service works again for its users.

From the kill on, each service is asked for what only it can do; the clock stops at the first answer. The supervisor
restarts the same instance; there is no standby.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench_documents import job
from jobs import Events, received_events
from measuring import Measurement
from system_under_test import running_system

from muster.aio import AsyncClient
from muster_core.events import JobPlaced, ScaleProposed
from muster_core.models import Phase
from muster_events.subjects import job_id_of
from muster_rpc.convert import phase_from_proto

SERVICES = ("gateway", "spec-validator", "scheduler", "pod-launcher", "scaler", "status-tracker")
NAMES = tuple(f"recovery_s.{service}" for service in (*SERVICES, "worst"))

_BUDGET_S = 4.0
_IDLE_PERIOD_S = 1.0
_POLL_S = 0.02
_UP = frozenset({Phase.RUNNING, Phase.SUCCEEDED})
_TIMEOUT_S = 30.0


class Asker:
    """Requests the work of each service, with names unique to the round.

    Args:
        muster: the client, which retries what a dead gateway does not answer.
        events: the events meanwhile.
        prefix: prefix of the job names.
    """

    def __init__(self, *, muster: AsyncClient, events: Events, prefix: str) -> None:
        self._muster = muster
        self._events = events
        self._prefix = prefix

    async def ask(self, service: str) -> None:
        """Return when `service` has done its work; raises ``TimeoutError``."""
        work: dict[str, Callable[[], Awaitable[None]]] = {
            "gateway": self._gateway,
            "spec-validator": self._spec_validator,
            "scheduler": self._scheduler,
            "pod-launcher": self._pod_launcher,
            "scaler": self._scaler,
            "status-tracker": self._status_tracker,
        }
        await work[service]()

    async def _gateway(self) -> None:
        """Wait for the acknowledgement of a submission."""
        await self._submit("acknowledged")

    async def _spec_validator(self) -> None:
        """Wait for the validation of a submission."""
        name = f"{self._prefix}-judged"
        (judged,) = await self._muster.submit(
            job(name, "true"), request_id=name, validation_wait_s=_TIMEOUT_S
        )
        if not judged.validated:
            raise TimeoutError(f"{name} was not validated within {_TIMEOUT_S:g} s")

    async def _scheduler(self) -> None:
        """Wait for a placement."""
        name = await self._submit("placed")
        await self._events.first(JobPlaced, name, timeout_s=_TIMEOUT_S)

    async def _pod_launcher(self) -> None:
        """Wait for a running replica."""
        await self._runs("launched")

    async def _scaler(self) -> None:
        """Wait for a proposal to grow an elastic job, which needs an idle second after its start in any case."""
        name = f"{self._prefix}-grown"
        await self._muster.submit(job(name, "sleep", "60", high=2), request_id=name, validation_wait_s=0.0)
        await self._events.first(ScaleProposed, name, timeout_s=_TIMEOUT_S)

    async def _status_tracker(self) -> None:
        """Wait for a query that reports a new job as running."""
        await self._runs("watched")

    async def _runs(self, what: str) -> None:
        job_id = job_id_of(await self._submit(what))
        async with asyncio.timeout(_TIMEOUT_S):
            while not await self._is_up(job_id):
                await asyncio.sleep(_POLL_S)

    async def _is_up(self, job_id: str) -> bool:
        return phase_from_proto((await self._muster.get(job_id)).status.phase) in _UP

    async def _submit(self, what: str) -> str:
        name = f"{self._prefix}-{what}"
        await self._muster.submit(job(name, "true"), request_id=name, validation_wait_s=0.0)
        return name


async def measure(root: Path, *, quick: bool) -> list[Measurement]:
    """Kill each service once a round, each round on a new system; the worst round of a service counts."""
    rounds = [await _round(root) for _ in range(1 if quick else 3)]
    worst = {service: max(seconds[service] for seconds in rounds) for service in SERVICES}
    slowest = max(SERVICES, key=lambda service: worst[service])
    return [
        *(
            Measurement(
                name=f"recovery_s.{service}",
                value=worst[service],
                unit="s",
                budget=_BUDGET_S,
                note="the worst of " + ", ".join(f"{seconds[service]:.2f}" for seconds in rounds),
            )
            for service in SERVICES
        ),
        Measurement(
            name="recovery_s.worst",
            value=worst[slowest],
            unit="s",
            budget=_BUDGET_S,
            note=f"that of {slowest}",
        ),
    ]


async def _round(root: Path) -> dict[str, float]:
    seconds: dict[str, float] = {}
    async with (
        running_system(root, idle_period_s=_IDLE_PERIOD_S) as system,
        received_events(system) as events,
    ):
        for service in SERVICES:
            async with AsyncClient(system.address) as muster:
                # Exclude what is slow only the first time.
                await Asker(muster=muster, events=events, prefix="before-" + service).ask(service)
                began = time.monotonic()
                system.kill(service)
                await Asker(muster=muster, events=events, prefix="after-" + service).ask(service)
                seconds[service] = time.monotonic() - began
            await system.wait_ready()
    return seconds
