import socket
import struct

import pytest

from muster_testing.cluster.dns_server import answer


def a_question(name: str, *, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def known(namespace: str, service: str, hostname: str | None) -> list[str] | None:
    if (namespace, service) != ("team", "gang"):
        return None
    return {None: ["10.0.0.1", "10.0.0.2"], "w-0": ["10.0.0.1"]}.get(hostname)


def unreachable(namespace: str, service: str, hostname: str | None) -> list[str] | None:
    raise ConnectionRefusedError


def code(reply: bytes) -> int:
    return reply[3] & 0x0F


def addresses(reply: bytes) -> list[str]:
    count = int.from_bytes(reply[6:8])
    return [socket.inet_ntoa(reply[len(reply) - 16 * (count - n) + 12 :][:4]) for n in range(count)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gang.team.svc.cluster.local", ["10.0.0.1", "10.0.0.2"]),
        ("w-0.gang.team.svc.cluster.local", ["10.0.0.1"]),
        ("W-0.Gang.team.SVC.cluster.local", ["10.0.0.1"]),
    ],
)
def test_services_and_their_pods_have_addresses(name: str, expected: list[str]) -> None:
    reply = answer(a_question(name), known)

    assert (code(reply), addresses(reply)) == (0, expected)


@pytest.mark.parametrize("name", ["w-1.gang.team.svc.cluster.local", "gang.team", "example.org"])
def test_names_outside_the_cluster_do_not_exist(name: str) -> None:
    assert code(answer(a_question(name), known)) == 3


def test_an_existing_name_without_an_address_of_the_type_is_no_error() -> None:
    reply = answer(a_question("gang.team.svc.cluster.local", kind=28), known)

    assert (code(reply), addresses(reply)) == (0, [])


def test_an_unavailable_api_server_is_a_server_failure() -> None:
    assert code(answer(a_question("gang.team.svc.cluster.local"), unreachable)) == 2


@pytest.mark.parametrize("datagram", [b"", b"short", a_question("a.b")[:14]])
def test_an_invalid_query_raises_an_error(datagram: bytes) -> None:
    with pytest.raises(ValueError, match="invalid query"):
        answer(datagram, known)
