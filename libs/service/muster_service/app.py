"""The life of a service process: settings, logs, telemetry, health, parts, drain, exit code.

    # __main__.py of a service
    from muster_service.app import run_app
    from muster_scheduler.service import build
    from muster_scheduler.settings import SchedulerSettings

    if __name__ == "__main__":
        run_app(build, settings=SchedulerSettings, service="scheduler")

`build(settings, ctx)`, a function or a coroutine function, constructs the adapters and adds the parts to `ctx`. Exit
codes: 0 after a drain, 1 after a crash, 2 for invalid settings, 128 + n for a second signal n.
"""

import argparse
import asyncio
import gc
import inspect
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, TypeVar

import uvloop

from muster_service.http_server import HttpServer
from muster_service.logs import configure_logs, fields, say
from muster_service.metrics import Exposition, Metrics
from muster_service.process_metrics import EventLoopLag, count_dropped_spans, register_process_metrics
from muster_service.process_resources import ResourceCheck
from muster_service.readiness import DRAINING, Readiness
from muster_service.settings import (
    ServiceSettings,
    SettingsError,
    describe_settings,
    load_settings,
    misspelt_variables,
)
from muster_service.supervisor import Part, PartSupervisor
from muster_service.tracing import Telemetry

if TYPE_CHECKING:
    from muster_service.grpc_server import AddServicer, GrpcHost


log = logging.getLogger(__name__)

S = TypeVar("S", bound=ServiceSettings)
Build = Callable[[S, "Context"], Awaitable[None] | None]

_FLUSH_S = 2.0
_SHARE_OF_CALLS = 0.6
_STARTING = "start"
_COLLECT_AFTER = (20_000, 50, 20)
COLLECT_EVERY_S = 60.0


class Context:
    """The context of a service's `build`.

    Attributes:
        service: its name.
        instance: the name of this instance.
        telemetry: for spans.
        metrics: for counters.
        log: a logger with the service's name.
        readiness: the conditions under which the service can work.
        addresses: bound addresses by name, for the ready line; `build` may add to it.
    """

    def __init__(
        self,
        *,
        service: str,
        settings: ServiceSettings,
        app: PartSupervisor,
        telemetry: Telemetry,
        metrics: Metrics,
    ) -> None:
        self.service = service
        self.instance = settings.instance
        self.telemetry = telemetry
        self.metrics = metrics
        self.log = logging.getLogger(service)
        self.readiness = Readiness()
        self.addresses: dict[str, str] = {}
        self._app = app
        self._servicers: list[tuple[AddServicer, object]] = []

    def add_part(self, name: str, part: Part) -> None:
        """Run `part()` as long as the service runs. It may return when done; if it raises, the process ends.

        Raises:
            ValueError: there is a part of that name.
        """
        self._app.add(name, part)

    def add_grpc(self, add: "AddServicer", servicer: object) -> None:
        """Serve `servicer`, whose generated `add_...Servicer_to_server` is `add`, at the service's gRPC address."""
        self._servicers.append((add, servicer))

    def on_drain(self, hook: Part) -> None:
        """Await `hook()` when the service is asked to stop, while its parts still run and calls are still answered."""
        self._app.on_drain(hook)

    def on_close(self, hook: Part) -> None:
        """Await `hook()` after all parts and calls ended, in reverse order of adding."""
        self._app.on_close(hook)

    def set_ready(self, part: str, ready: bool) -> None:
        """Set whether `part` can work; the service is ready when every named part is."""
        self.readiness.set(part, ready)

    def check_ready(self, part: str, ready: Callable[[], bool]) -> None:
        """Ask `ready` too whenever somebody asks whether `part` can work; see `Readiness.check`."""
        self.readiness.check(part, ready)

    def set_resource(self, name: str, shortage: str | None) -> None:
        """Set what a resource is short of, without which the service can answer calls, but not do all its work."""
        self.readiness.set(name, shortage is None, reason=shortage or "", needed_to_answer=False)

    def set_serving(self, service: str, serving: bool) -> None:
        """Set whether this instance answers calls of the gRPC service of that full name, while it is ready."""
        self.readiness.set_service(service, serving)

    def stop(self) -> None:
        """End the service like SIGTERM."""
        self._app.stop()

    def make_host(self, settings: ServiceSettings) -> "GrpcHost | None":
        """Return the gRPC server of the added servicers, or None."""
        if not self._servicers:
            return None
        # Imported here: a service without a gRPC server need not pay for it.
        from muster_service.grpc_server import GrpcHost  # noqa: PLC0415

        return GrpcHost(
            address=settings.grpc_address,
            services=self._servicers,
            telemetry=self.telemetry,
            metrics=self.metrics,
        )


def run_app(
    build: Build[S],
    *,
    settings: type[S],
    service: str,
    traced: bool = True,
    arguments: Sequence[str] | None = None,
) -> NoReturn:
    """Run a service until it is asked to stop, then exit the process.

    Args:
        build: constructs the service; see the module.
        settings: the struct to fill from the environment.
        service: its name, as in `MUSTER_<SERVICE>_...`.
        traced: False for a service that must not export spans, whatever the environment says.
        arguments: the command line; default `sys.argv[1:]`.
    """
    _parse_arguments(arguments, settings, service)
    try:
        loaded = load_settings(settings, service=service)
    except SettingsError as refused:
        sys.stderr.write(f"{service}: {refused}\n")
        sys.exit(2)
    configure_logs(
        service=service, instance=loaded.instance, level=loaded.log_level, log_format=loaded.log_format
    )
    for sentence in misspelt_variables(settings, service=service):
        log.warning(sentence)
    _use_batch_scheduling()
    metrics = Metrics()
    telemetry = Telemetry.start(
        service,
        loaded.instance,
        loaded.otlp_endpoint if traced else None,
        on_dropped=count_dropped_spans(metrics),
    )
    try:
        # Its loop is cheaper than asyncio's (docs/decisions/tuning.md).
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(_run(build, loaded, service, telemetry, metrics))
    finally:
        telemetry.shutdown(_FLUSH_S)
    sys.exit(code)


async def _run(build: Build[S], settings: S, service: str, telemetry: Telemetry, metrics: Metrics) -> int:
    started = time.monotonic()
    app = PartSupervisor(name=service, drain_s=settings.drain_seconds)
    ctx = Context(service=service, settings=settings, app=app, telemetry=telemetry, metrics=metrics)
    pages = HttpServer(
        host=settings.metrics_address.host,
        port=settings.metrics_address.port,
        handler=Exposition(ctx.metrics, ctx.readiness),
    )
    _stop_on_signals(app)
    register_process_metrics(metrics, ctx.readiness)
    ctx.set_ready(_STARTING, False)
    ctx.add_part("resources", ResourceCheck(ctx.set_resource).run)
    ctx.add_part("garbage", _collect_garbage)
    ctx.add_part("loop-lag", EventLoopLag(metrics).run)
    ctx.on_drain(_mark_draining(ctx))
    ctx.on_close(pages.stop)
    try:
        await pages.start()
        ctx.addresses["metrics"] = f"{settings.metrics_address.rpartition(':')[0]}:{pages.port}"
        if await app.until_stopped(_build(build, settings, ctx)):
            await _answer_calls(ctx, settings)
            _announce_when_ready(ctx, started)
            app.start()
            ctx.set_ready(_STARTING, True)
    except Exception:
        app.crash(_STARTING, "failed")
    code = await app.run()
    _exit_eventually(code)
    return code


async def _build(build: Build[S], settings: S, ctx: Context) -> None:
    outcome = build(settings, ctx)
    if inspect.isawaitable(outcome):
        await outcome


async def _answer_calls(ctx: Context, settings: ServiceSettings) -> None:
    host = ctx.make_host(settings)
    if host is None:
        return
    changes: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()

    async def report_health() -> None:
        while True:
            service, serving = await changes.get()
            await (host.set_service(service, serving) if service else host.set_serving(serving))

    async def finish_calls() -> None:
        await host.stop(settings.drain_seconds * _SHARE_OF_CALLS)

    async def cancel_calls() -> None:
        await host.stop(0)

    await host.start()
    ctx.addresses["grpc"] = host.address
    ctx.readiness.listen_to_answers(lambda answers: changes.put_nowait(("", answers)))
    ctx.readiness.listen_to_services(lambda service, serving: changes.put_nowait((service, serving)))
    ctx.add_part("grpc-health", report_health)
    ctx.on_drain(finish_calls)
    # An earlier hook may have used up the drain time.
    ctx.on_close(cancel_calls)


def _mark_draining(ctx: Context) -> Part:
    async def hook() -> None:
        ctx.set_ready(DRAINING, False)

    return hook


def _exit_eventually(code: int) -> None:
    # A hanging library thread would otherwise keep the drained process alive for ever.
    last = threading.Timer(_FLUSH_S * 2, os._exit, (code,))
    last.daemon = True
    last.start()


def _announce_when_ready(ctx: Context, started: float) -> None:
    announced = False

    def announce(ready: bool) -> None:
        nonlocal announced
        if ready and not announced:
            announced = True
            _freeze_objects()
            # The supervisor waits for this line, whatever the log level is.
            say(ctx.log, "ready", **ctx.addresses, startup_s=round(time.monotonic() - started, 3))

    ctx.readiness.listen(announce)


def _use_batch_scheduling() -> None:
    """Run under SCHED_BATCH: on busy CPUs running processes finish their slice, and more work is done at once
    (docs/decisions/tuning.md).

    Children inherit it.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _freeze_objects() -> None:
    """Exclude the service's own objects from garbage collection: a full collection over all of them would delay every call."""
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


async def _collect_garbage() -> None:
    """Collect garbage every minute: a service with few calls does not reach the thresholds for hours, while cycles pile up."""
    while True:
        await asyncio.sleep(COLLECT_EVERY_S)
        gc.collect()


def _stop_on_signals(app: PartSupervisor) -> None:
    loop = asyncio.get_running_loop()

    def stop(signum: int) -> None:
        if app.stopping:
            os._exit(128 + signum)
        log.info("stopping", extra=fields(signal=signal.Signals(signum).name))
        app.stop()

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop, signum)


def _parse_arguments(arguments: Sequence[str] | None, settings: type[ServiceSettings], service: str) -> None:
    rows = describe_settings(settings, service=service)
    width = max(len(row.variable) for row in rows)
    table = "\n".join(
        f"  {row.variable:<{width}}  {row.help}: {row.allowed}"
        + ("; must be set" if row.default is None else f" [{row.default}]" if row.default else "")
        for row in rows
    )
    parser = argparse.ArgumentParser(
        prog=service,
        description=f"The {service} service of Muster. It is configured by environment variables:\n\n{table}",
        epilog=f"Without its {service.upper().replace('-', '_')}_ part, a variable applies to all services.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(arguments)
