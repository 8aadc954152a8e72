"""The whole of Muster on this machine, as run by `muster up` and embedded by tests and benchmarks."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from muster_local.directory import DataDirectory, LogFile
from muster_local.endpoints import Endpoints, ServiceEndpoint, assign_ports, require_port, write_endpoints
from muster_local.log_lines import LogLine, supervisor_line
from muster_local.processes import SUPERVISOR, LocalError, Supervisor
from muster_local.programs import (
    BROKER,
    GATEWAY,
    SINK,
    LocalOptions,
    SystemPrograms,
    is_broker_ready,
    module_command,
)
from muster_local.replicas import end_replicas, running_replicas

if TYPE_CHECKING:
    from muster_local.broker_health import BrokerHealth

_BROKER_READY_S = 60.0
_READY_S = 60.0


def _discard(_: LogLine) -> None:
    return


class LocalSystem:
    """The broker, unless it runs elsewhere, the six services and the trace sink, supervised; an async context manager.

    The event loop must run in a thread that outlives the system, such as the main thread.

    Args:
        data: the data directory.
        options: the options of the system.
        listener: gets every line of every program and of the supervisor; without one, lines only go to the log file.
        command: see `SystemPrograms`.
    """

    def __init__(
        self,
        data: Path,
        options: LocalOptions | None = None,
        *,
        listener: Callable[[LogLine], None] | None = None,
        command: Callable[[str], tuple[str, ...]] = module_command,
    ) -> None:
        self.directory = DataDirectory(data)
        self.options = options or LocalOptions()
        self._listener = listener or _discard
        self._has_listener = listener is not None
        self._command = command
        self._lock: int | None = None
        self._log_file: LogFile | None = None
        self._supervisor: Supervisor | None = None
        self._programs: SystemPrograms | None = None
        self._broker_health: BrokerHealth | None = None
        self._watching_broker: asyncio.Task[None] | None = None
        self._started = False

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def address(self) -> str:
        """The gateway's `host:port`."""
        return self._system.addresses[GATEWAY].grpc

    @property
    def bus_url(self) -> str:
        """The broker's URL."""
        return self._system.bus_url

    @property
    def trace_query_url(self) -> str | None:
        """The URL that returns traces, if any."""
        return self._system.trace_query_url

    @property
    def metrics(self) -> dict[str, str]:
        """The address of `/metrics`, `/healthz` and `/readyz` of every instance of a service."""
        return {name: self._system.addresses[name].http for name in self.options.instance_names}

    @property
    def services(self) -> dict[str, int]:
        """The pid of every running instance of a service, by name."""
        children = self._running.children
        return {
            name: pid
            for name in self.options.instance_names
            if name in children and (pid := children[name].pid) is not None
        }

    @property
    def started(self) -> bool:
        """Whether the start is complete and no stop has begun."""
        return self._started

    async def start(self) -> None:
        """Start the system and wait until it is ready. After a failed or cancelled start, call `stop`.

        Raises:
            LocalError: the directory or a port is in use; the disk is too small; a program fails to start, or is not ready
                within a minute.
        """
        from muster_events.catalogue import STREAMS  # noqa: PLC0415
        from muster_local.store_size import require_space  # noqa: PLC0415

        external = self.options.broker
        # First of all: on a full disk nothing else could be written.
        disk = None if external else require_space(self.directory.store, STREAMS)
        self.directory.make()
        self._lock = await self.directory.lock()
        self.directory.endpoints.unlink(missing_ok=True)
        self._log_file = LogFile(self.directory.log)
        self._supervisor = supervisor = Supervisor(
            on_line=self._receive,
            # Without a listener, parsing would be wasted work.
            on_raw=None if self._has_listener else self._keep,
            on_start=self._note_start,
        )
        if self.options.port:
            await require_port(self.options.port)
        ports = assign_ports(self.options.port_names, file=self.directory.ports)
        self._programs = programs = SystemPrograms(self.options, self.directory, ports, command=self._command)
        if disk is not None:
            # Not what is free now: the streams have limits, and the disk may be extended or freed while the broker runs.
            broker = programs.broker(self._lock, max_store_bytes=disk.total_bytes)
            supervisor.start(broker, is_ready=is_broker_ready)
        if self.options.spans.sink:
            supervisor.start(programs.sink())
        # The import overlaps with the broker's start; the services need the streams to start.
        from muster_bus import BusError, BusSettings  # noqa: PLC0415
        from muster_local.provision import provision_bus  # noqa: PLC0415

        if disk is not None:
            await supervisor.wait_ready([BROKER], timeout_s=_BROKER_READY_S)
        try:
            await provision_bus(
                BusSettings(url=programs.bus_url),
                store_bytes=disk.available_bytes if disk else external and external.store_bytes,
                stream_replicas=external.stream_replicas if external else 1,
            )
        except (BusError, TimeoutError) as error:
            raise LocalError(f"cannot create the broker's streams: {str(error) or 'no answer'}") from error
        if external is None:
            self._watch_broker()
        for name in self.options.instance_names:
            supervisor.start(programs.service(name))
        await self.wait_ready()
        self._started = True
        self._write_endpoints()

    async def wait_ready(self, *, timeout_s: float = _READY_S) -> None:
        """Wait until all programs are ready, for instance after `kill`.

        Raises:
            LocalError: a program failed for good, or is not ready in time.
        """
        await self._running.wait_ready(self._running.children, timeout_s=timeout_s)

    async def failure(self) -> None:
        """Wait until a program fails for good; never returns otherwise.

        Raises:
            ProgramFailed: the program and its last output.
        """
        await self._running.failure()

    async def stop(self) -> None:
        """Stop the services, then the trace sink, then the broker; replicas continue. Without a running system, do nothing."""
        self._started = False
        if self._watching_broker is not None:
            self._watching_broker.cancel()
            await asyncio.gather(self._watching_broker, return_exceptions=True)
            self._watching_broker = self._broker_health = None
        if self._supervisor is not None:
            await self._supervisor.stop(self.options.instance_names)
            await self._supervisor.stop([SINK])
            await self._supervisor.stop([BROKER])
            self._supervisor = None
        if self._log_file is not None:
            self._log_file.close()
            self._log_file = None
        if self._lock is not None:
            self.directory.endpoints.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def kill_now(self) -> None:
        """Kill all programs; a pending `stop` then returns at once."""
        if self._supervisor is not None:
            self._supervisor.kill_now()

    def kill(self, name: str) -> int:
        """Send SIGKILL to an instance, the trace sink or the broker, by name; it is restarted. Return the killed pid.

        It counts as not ready at once, so that `wait_ready` waits for the next start.

        Raises:
            KeyError: the name is unknown, or the program is not running.
        """
        child = self._running.children[name]
        pid = child.kill()
        if pid is None:
            raise KeyError(f"{name} is not running")
        return pid

    def kill_all(self) -> dict[str, int]:
        """Send SIGKILL to all services and the broker of this system, as in a power cut; return their pids."""
        own = () if self.options.broker else (BROKER,)
        return {name: self.kill(name) for name in (*self.services, *own)}

    def log_text(self) -> str:
        """Return the log file: each line has a program's name and its unparsed output."""
        return self.directory.log.read_text(errors="replace")

    def running_replicas(self) -> int:
        """Return the number of running replicas."""
        return len(running_replicas(self.directory.replicas))

    async def end_replicas(self) -> int:
        """Stop the replicas that a stopped system left running; return their number."""
        return await end_replicas(self.directory.replicas)

    async def wipe(self) -> int:
        """Before a start: stop replicas that still run and remove all state; return their number.

        Raises:
            DirectoryInUse: a system runs with this directory.
        """
        self.directory.make()
        lock = await self.directory.lock()
        try:
            ended = await end_replicas(self.directory.replicas)
            await asyncio.to_thread(self.directory.wipe)
        finally:
            os.close(lock)
        return ended

    @property
    def _system(self) -> SystemPrograms:
        if self._programs is None:
            raise RuntimeError("the system was not started")
        return self._programs

    @property
    def _running(self) -> Supervisor:
        if self._supervisor is None:
            raise RuntimeError("the system is not running")
        return self._supervisor

    def _watch_broker(self) -> None:
        from muster_bus import BusSettings  # noqa: PLC0415 - as in `start`
        from muster_local.broker_health import BrokerHealth  # noqa: PLC0415

        self._broker_health = BrokerHealth(
            settings=BusSettings(url=self.bus_url),
            store=self.directory.store,
            restart=self._restart_broker,
            log=lambda level, message: self._receive(supervisor_line(SUPERVISOR, level, message), b""),
        )
        self._watching_broker = asyncio.create_task(self._broker_health.run())

    def _restart_broker(self) -> None:
        self._running.children[BROKER].kill()

    def _receive(self, line: LogLine, raw: bytes) -> None:
        self._keep(line.source, raw or line.message.encode())
        self._listener(line)

    def _keep(self, source: str, raw: bytes) -> None:
        if source == BROKER and self._broker_health is not None:
            self._broker_health.observe(raw)
        if self._log_file is not None:
            self._log_file.write(source, raw)

    def _note_start(self) -> None:
        if self._started:
            try:
                self._write_endpoints()
            except OSError as error:
                self._listener(
                    supervisor_line(
                        SUPERVISOR, "warning", f"{self.directory.endpoints} is stale: {error.strerror}"
                    )
                )

    def _write_endpoints(self) -> None:
        children, programs = self._running.children, self._system
        pids = {name: child.pid for name, child in children.items()}
        endpoints = Endpoints(
            pid=os.getpid(),
            gateway=self.address,
            bus_url=programs.bus_url,
            broker_pid=pids.get(BROKER),
            sink_pid=pids.get(SINK),
            otlp_endpoint=programs.otlp_endpoint,
            trace_query_url=programs.trace_query_url,
            services={
                name: ServiceEndpoint(
                    pid=pids[name], grpc=programs.addresses[name].grpc, metrics=programs.addresses[name].http
                )
                for name in self.options.instance_names
            },
        )
        write_endpoints(self.directory.endpoints, endpoints)
