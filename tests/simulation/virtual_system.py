"""The six services, each in one or two instances, on an in-memory broker, network and machine under one virtual clock."""

from __future__ import annotations

import logging
import os
import random as global_random
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from types import ModuleType
from typing import Any

from grpc import aio
from memory_broker import MemoryBroker
from memory_grpc import Endpoint, GrpcNetwork, MemoryChannel
from memory_machine import Machine, MemoryRuntime
from memory_network import BusHub, Network, Pipe
from virtual_loop import Process, VirtualLoop

import muster_bus.connection
import muster_bus.pull_subscription
import muster_gateway.service
import muster_pod_launcher.service
import muster_scaler.service
import muster_scheduler.service
import muster_spec_validator.service
import muster_status_tracker.service
from muster_bus import Bus, BusSettings, provision
from muster_core.models import Node
from muster_events.catalogue import (
    BUCKETS,
    CONSUMERS,
    GATEWAY,
    POD_LAUNCHER,
    SCALER,
    SCHEDULER,
    SPEC_VALIDATOR,
    STATUS_TRACKER,
    STREAMS,
)
from muster_formats.registry import all_formats
from muster_gateway.settings import GatewaySettings
from muster_pod_launcher.settings import PodLauncherSettings
from muster_scaler.settings import ScalerSettings
from muster_scheduler.settings import SchedulerSettings
from muster_service.app import Context
from muster_service.metrics import Metrics
from muster_service.readiness import DRAINING
from muster_service.settings import ServiceSettings
from muster_service.supervisor import PartSupervisor
from muster_service.tracing import Telemetry
from muster_spec_validator.settings import SpecValidatorSettings
from muster_status_tracker.settings import StatusTrackerSettings

os.environ["OTEL_SDK_DISABLED"] = "true"
# The readers of documents are imported here once, and not in every run.
all_formats()

_STARTING = "start"
_DRAIN_SHARE = 0.6

Build = Callable[[Any, Context], Awaitable[None]]

SERVICES: Mapping[str, tuple[Build, type[ServiceSettings], Mapping[str, Any]]] = {
    GATEWAY: (
        muster_gateway.service.build,
        GatewaySettings,
        {
            f"{service.replace('-', '_')}_address": f"memory:///{service}"
            for service in (SPEC_VALIDATOR, STATUS_TRACKER, SCHEDULER, POD_LAUNCHER)
        },
    ),
    SPEC_VALIDATOR: (muster_spec_validator.service.build, SpecValidatorSettings, {}),
    SCHEDULER: (muster_scheduler.service.build, SchedulerSettings, {}),
    POD_LAUNCHER: (muster_pod_launcher.service.build, PodLauncherSettings, {}),
    SCALER: (muster_scaler.service.build, ScalerSettings, {"idle_period_seconds": 5.0}),
    STATUS_TRACKER: (muster_status_tracker.service.build, StatusTrackerSettings, {}),
}


class _NoMetric:
    """A counter, gauge or histogram that counts nothing."""

    def labels(self, *_: object) -> _NoMetric:
        return self

    def inc(self, _: float = 1) -> None:
        return

    def dec(self, _: float = 1) -> None:
        return

    def set(self, _: float) -> None:
        return

    def observe(self, _: float) -> None:
        return

    def set_function(self, _: object) -> None:
        return

    def remove(self, *_: object) -> None:
        return


class _NoMetrics(Metrics):
    """Metrics that cost nothing."""

    def __init__(self) -> None:
        super().__init__(process=False)

    def _metric(self, kind: object, name: str, make: object) -> Any:
        return _NO_METRIC


_NO_METRIC = _NoMetric()


class Instance:
    """One instance of a service, through all its processes."""

    def __init__(self, system: VirtualSystem, service: str, slot: int) -> None:
        self.service = service
        self.name = f"{service}-{slot}"
        self.process: Process | None = None
        self.endpoint: Endpoint | None = None
        self.context: Context | None = None
        self.starts = 0
        self._system = system
        self._app: PartSupervisor | None = None

    @property
    def ready(self) -> bool:
        """Whether it reports ready."""
        return self.context is not None and self.context.readiness.ready

    def start(self) -> None:
        """Start a new process."""
        self.starts += 1
        process = self.process = Process(f"{self.name}.{self.starts}")
        self.context = self.endpoint = self._app = None
        self._system.loop.deliver(self._system.loop.now, process, self._create, process)

    def kill(self) -> None:
        """Kill the process, as by SIGKILL."""
        process = self.process
        if process is None or not process.alive:
            return
        self.context = None
        self._system.kill(process)

    def stop(self) -> None:
        """Ask the process to stop, as by SIGTERM."""
        if self.process is not None and self._app is not None:
            self._system.loop.deliver(self._system.loop.now, self.process, self._app.stop)

    def _create(self, process: Process) -> None:
        self._system.keep(self._system.loop.create_task(self._main(process), name=self.name))

    async def _main(self, process: Process) -> None:
        system, loop = self._system, self._system.loop
        build, settings_type, chosen = SERVICES[self.service]
        settings = settings_type(instance=process.name, **chosen)
        app = self._app = PartSupervisor(name=self.service, drain_s=settings.drain_seconds)
        telemetry = Telemetry.start(self.service, settings.instance)
        context = Context(
            service=self.service,
            settings=settings,
            app=app,
            telemetry=telemetry,
            metrics=_NoMetrics(),
        )
        self.context = context
        context.set_ready(_STARTING, False)

        async def mark_draining() -> None:
            context.set_ready(DRAINING, False)

        context.on_drain(mark_draining)
        try:
            if await app.until_stopped(build(settings, context)):
                self._serve(process, context, telemetry, settings)
                app.start()
                context.set_ready(_STARTING, True)
        except Exception:
            app.crash(_STARTING, "failed")
        code = await app.run()
        loop.deliver(loop.now, None, system.on_exit, self, process, code)

    def _serve(
        self, process: Process, context: Context, telemetry: Telemetry, settings: ServiceSettings
    ) -> None:
        endpoint = Endpoint(process, self.service, telemetry=telemetry, metrics=context.metrics)
        for add, servicer in context._servicers:  # pyright: ignore[reportPrivateUsage]
            add(servicer, endpoint)
        self.endpoint = endpoint
        system = self._system
        system.calls.serve(endpoint)

        watched = Pipe(system.network, process, None)

        def report_health(service: str, serving: bool) -> None:
            watched.send(endpoint.set_serving, service, serving)

        readiness = context.readiness
        readiness.listen(lambda ready: report_health("", ready))
        readiness.listen_to_services(report_health)

        async def finish_calls() -> None:
            self._system.calls.stop(endpoint)
            endpoint.interceptor.end_streams(0.5)
            await endpoint.finish(settings.drain_seconds * _DRAIN_SHARE)

        async def cancel_calls() -> None:
            await endpoint.finish(0.0)

        context.on_drain(finish_calls)
        context.on_close(cancel_calls)


class VirtualSystem:
    """Everything of one simulated cluster; ``report`` is called with the kind and the text of a violation."""

    def __init__(
        self,
        *,
        seed: int,
        nodes: Sequence[Node],
        instances: Mapping[str, int],
        report: Callable[[str, str], None],
    ) -> None:
        self.seed = seed
        self.loop = VirtualLoop(executor_delay=self._thread_delay)
        self.network = Network(self.loop, self.random("network"))
        self.hub = BusHub(self.network, self.random("hub"))
        self.calls = GrpcNetwork(self.network, self.random("calls"))
        store = self.random("store")
        self.broker = self.hub.broker = MemoryBroker(
            now=self.loop.time,
            wall_ns=self.loop.wall_ns,
            call_at=self._call_at,
            route=self.hub.route,
            route_all=self.hub.route_all,
            has_interest=self.hub.has_interest,
            store_delay=lambda: 0.0002 + store.random() * 0.0015,
        )
        self.machine = Machine(self.loop, self.random("machine"), nodes, report)
        self.instances = [
            Instance(self, service, slot) for service in SERVICES for slot in range(instances.get(service, 1))
        ]
        self._report = report
        self._threads = self.random("threads")
        self._tokens = self.random("tokens")
        self._kept: list[object] = []
        self._install()

    def random(self, purpose: str) -> Random:
        """Return the random numbers for one purpose, so that one purpose does not change another."""
        return Random(f"{self.seed}/{purpose}")

    def channel(self, service: str) -> MemoryChannel:
        """Return a channel for a client outside the cluster."""
        return self.calls.channel(f"memory:///{service}")

    def channel_to(self, endpoint: Endpoint) -> MemoryChannel:
        """Return a channel to one instance."""
        return MemoryChannel(self.calls, endpoint.service, only=endpoint)

    async def start(self) -> None:
        """Provision the bus and start every instance."""
        bus = await Bus.connect(BusSettings(), name="provisioning")
        await provision(bus, STREAMS, CONSUMERS, BUCKETS)
        await bus.close()
        for instance in self.instances:
            instance.start()

    def kill(self, process: Process) -> None:
        """Kill a process."""
        self.loop.kill(process)
        self.network.heal(process)
        self.hub.kill(process)
        self.calls.kill(process)

    def on_exit(self, instance: Instance, process: Process, code: int) -> None:
        """Start an instance again whose process has ended by itself."""
        if instance.process is not process or not process.alive:
            return
        if code:
            self._report("service ended", f"{instance.name} ended by itself with {code}")
        instance.kill()
        self.loop.deliver(self.loop.now + 0.5, None, self._restart, instance, process)

    def _restart(self, instance: Instance, process: Process) -> None:
        if instance.process is process:
            instance.start()

    def keep(self, task: object) -> None:
        """Keep a task referenced, so that the collection of garbage never runs its clean-up."""
        self._kept.append(task)

    def _call_at(self, when: float, callback: Callable[..., object], *args: object) -> Any:
        return self.loop.deliver(when, None, callback, *args)

    def _thread_delay(self) -> float:
        return self._threads.uniform(0.0, 0.003)

    def _token(self, size: int = 16) -> str:
        return f"{self._tokens.getrandbits(8 * size):0{2 * size}x}"

    async def _make_runtime(
        self, settings: object, context: object, *, clock: Callable[[], int]
    ) -> MemoryRuntime:
        return MemoryRuntime(self.machine, clock)

    def _install(self) -> None:
        """Replace what the services would use of the real world, for the rest of this operating system process."""
        self.loop.install_clock()
        self.machine.install()
        muster_bus.connection.new_client = self.hub.new_client
        _replace(muster_pod_launcher.service, "make_runtime", self._make_runtime)
        _replace(muster_bus.pull_subscription, "_PHASE", self._tokens.random())
        aio.insecure_channel = self.calls.channel
        global_random.seed(self.seed)
        for name, module in list(sys.modules.items()):
            if name.startswith("muster_") and hasattr(module, "token_hex"):
                _replace(module, "token_hex", self._token)
        _replace(secrets, "token_hex", self._token)
        logging.raiseExceptions = False


def _replace(module: ModuleType, name: str, value: object) -> None:
    setattr(module, name, value)
