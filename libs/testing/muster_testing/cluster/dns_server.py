"""A DNS server for the pods of a real node, which resolves headless services from their endpoint slices.

Every query reads the API server, so nothing is cached. Names are ``SERVICE.NAMESPACE.svc.cluster.local`` and, for one pod,
``HOSTNAME.SERVICE.NAMESPACE.svc.cluster.local``; names outside the cluster do not exist.

    python -I -S dns_server.py PLAN.json
"""

import http
import http.client
import json
import socket
import ssl
import struct
import sys
import threading
import urllib.parse
from collections.abc import Callable
from pathlib import Path

DOMAIN = ("svc", "cluster", "local")

_ADDRESS = 1
_INTERNET = 1
_NO_SUCH_NAME = 3
_SERVER_FAILURE = 2
_AUTHORITATIVE_ANSWER = 0x8400
_RECURSION_DESIRED = 0x0100
_TTL_S = 1
#: As many records as fit into a datagram of 512 bytes with a long name.
_MAX_RECORDS = 16
_TIMEOUT_S = 5.0

#: The addresses of a service in a namespace, or of one of its pods; None when there is no such name.
Lookup = Callable[[str, str, str | None], list[str] | None]


def main(plan_file: Path) -> None:
    """Serve on port 53 of the node's address."""
    plan: dict[str, str] = json.loads(plan_file.read_text())
    lookup = _endpoint_lookup(json.loads((Path(plan["folder"]) / "kubeconfig").read_text()))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((plan["address"].partition("/")[0], 53))
        while True:
            query, asker = server.recvfrom(4096)
            threading.Thread(target=_reply, args=(server, query, asker, lookup), daemon=True).start()


def answer(query: bytes, lookup: Lookup) -> bytes:
    """Return the response to a query; raises ``ValueError`` for an invalid query."""
    try:
        number, flags, count = struct.unpack_from("!HHH", query)
        labels, end = _read_name(query, 12)
        kind, family = struct.unpack_from("!HH", query, end)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"invalid query: {error}") from error
    if count != 1:
        raise ValueError(f"the query has {count} names")
    code, addresses = 0, list[str]()
    try:
        found = _resolve(labels, lookup)
    except OSError:
        code = _SERVER_FAILURE
    else:
        code = _NO_SUCH_NAME if found is None else 0
        addresses = (found or [])[:_MAX_RECORDS] if (kind, family) == (_ADDRESS, _INTERNET) else []
    header = struct.pack(
        "!HHHHHH",
        number,
        _AUTHORITATIVE_ANSWER | (flags & _RECURSION_DESIRED) | code,
        1,
        len(addresses),
        0,
        0,
    )
    # Each record refers to the name in the query.
    records = [
        struct.pack("!HHHIH", 0xC00C, _ADDRESS, _INTERNET, _TTL_S, 4) + socket.inet_aton(each)
        for each in addresses
    ]
    return header + query[12 : end + 4] + b"".join(records)


def _resolve(labels: list[str], lookup: Lookup) -> list[str] | None:
    if tuple(labels[-len(DOMAIN) :]) != DOMAIN:
        return None
    match labels[: -len(DOMAIN)]:
        case [service, namespace]:
            return lookup(namespace, service, None)
        case [hostname, service, namespace]:
            return lookup(namespace, service, hostname)
        case _:
            return None


def _read_name(datagram: bytes, start: int) -> tuple[list[str], int]:
    """Return the lower-case labels of a name, and its end."""
    labels: list[str] = []
    while size := datagram[start]:
        labels.append(datagram[start + 1 : start + 1 + size].decode("ascii").lower())
        start += 1 + size
    return labels, start + 1


def _endpoint_lookup(kubeconfig: dict[str, list[dict[str, dict[str, str]]]]) -> Lookup:
    cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    address = cluster["server"].removeprefix("https://")

    def lookup(namespace: str, service: str, hostname: str | None) -> list[str] | None:
        selector = urllib.parse.quote(f"kubernetes.io/service-name={service}")
        path = f"/apis/discovery.k8s.io/v1/namespaces/{urllib.parse.quote(namespace)}/endpointslices"
        server = http.client.HTTPSConnection(address, timeout=_TIMEOUT_S, context=context)
        try:
            authorization = {"Authorization": f"Bearer {user['token']}"}
            server.request("GET", f"{path}?labelSelector={selector}", headers=authorization)
            response = server.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise OSError(f"the API server answered {response.status}")
            slices = json.loads(response.read())["items"]
        except http.client.HTTPException as error:
            raise OSError(error) from error
        finally:
            server.close()
        found = [
            address
            for each in slices
            for endpoint in each.get("endpoints") or ()
            if hostname is None or endpoint.get("hostname") == hostname
            if endpoint.get("conditions", {}).get("ready", True)
            for address in endpoint["addresses"]
        ]
        return found or None

    return lookup


def _reply(server: socket.socket, query: bytes, asker: tuple[str, int], lookup: Lookup) -> None:
    try:
        server.sendto(answer(query, lookup), asker)
    except ValueError as error:
        sys.stderr.write(f"{asker[0]}: {error}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
