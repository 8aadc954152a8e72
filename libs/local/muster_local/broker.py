"""The broker on this machine: one nats-server with its store in the data folder."""

from muster_bus.server import find_server, server_config
from muster_local.folder import Folder, write_whole
from muster_local.lines import Line
from muster_local.program import LocalError, Program

BROKER = "broker"
_READY = "Server is ready"
_GRACE_S = 10.0


def bus_url(port: int) -> str:
    """What services and tools connect to."""
    return f"nats://127.0.0.1:{port}"


def broker_program(folder: Folder, *, port: int, lock: int) -> Program:
    """Write the broker's configuration and return how it is run.

    The broker inherits `lock`, the descriptor of the folder's lock: the store stays locked until the broker has ended.

    Raises:
        LocalError: there is no nats-server on this machine.
    """
    try:
        server = find_server()
    except FileNotFoundError as error:
        raise LocalError(str(error)) from error
    config = folder.broker / "server.conf"
    write_whole(config, server_config(port, folder.broker / "store").encode())
    return Program(
        name=BROKER,
        argv=(str(server), "-c", str(config)),
        env={"HOME": str(folder.root)},
        cwd=str(folder.root),
        grace_s=_GRACE_S,
        kept_fds=(lock,),
    )


def broker_says_ready(line: Line) -> bool:
    """Whether the broker says that it takes connections and has recovered its store."""
    return line.structured and line.message == _READY
