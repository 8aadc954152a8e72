import socket
from pathlib import Path

import pytest

from muster_local.endpoints import FIRST_PORT, LAST_PORT, PortTaken, assign_ports, is_free, require_port


def test_ports_are_kept_across_restarts(tmp_path: Path) -> None:
    first = assign_ports(["a", "b", "c"], file=tmp_path / "ports.json")
    assert len(set(first.values())) == 3
    assert all(FIRST_PORT <= port <= LAST_PORT for port in first.values())
    assert assign_ports(["c", "a"], file=tmp_path / "ports.json") == {"c": first["c"], "a": first["a"]}
    assert assign_ports(["b"], file=tmp_path / "ports.json") == {"b": first["b"]}


def test_a_port_taken_by_another_program_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    first = assign_ports(["a", "b"], file=file)
    with socket.create_server(("127.0.0.1", first["a"])):
        assert not is_free(first["a"])
        second = assign_ports(["a", "b"], file=file)
    assert second["a"] != first["a"]
    assert second["b"] == first["b"]
    assert assign_ports(["a"], file=file) == {"a": second["a"]}


def test_an_unreadable_ports_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "ports.json").write_text("{")
    assert set(assign_ports(["a"], file=tmp_path / "ports.json")) == {"a"}


async def test_a_required_port_in_use_is_refused_after_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} is in use by another program: .* --port"):
            await require_port(port)
    await require_port(port)
