"""Faults between a client and an API server, and scripts that inject them.

A script is called with every request before it is forwarded, and returns a fault or None; ``fault_proxy`` carries it out.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Sequence

import msgspec

_PATH = re.compile(
    r"/api/v1/(?:namespaces/[^/]+/)?(?P<kind>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<part>[^/]+))?)?"
)
_VERBS = {"POST": "create", "PATCH": "patch"}


class Request(msgspec.Struct, frozen=True):
    """A request in RBAC terms: ``create pods``, ``watch nodes``, ``deletecollection services``."""

    verb: str
    kind: str
    name: str = ""

    @property
    def what(self) -> str:
        return f"{self.verb} {self.kind}"

    @property
    def is_write(self) -> bool:
        return self.verb not in {"get", "list", "watch"}


class ErrorResponse(msgspec.Struct, frozen=True):
    """The response has this status; ``after``: the server has executed the request nevertheless."""

    status: int
    reason: str
    after: bool = False
    retry_after_s: int | None = None


class NoResponse(msgspec.Struct, frozen=True):
    """There is no response; ``after``: the server has executed the request nevertheless."""

    after: bool


class BrokenConnection(msgspec.Struct, frozen=True):
    """The connection breaks; ``after``: after the server has executed the request. A watch breaks after ``seconds``."""

    after: bool
    seconds: float = 0.0


class LateRequest(msgspec.Struct, frozen=True):
    """The connection breaks at once, and the server receives the request some seconds later."""

    seconds: float


class Delay(msgspec.Struct, frozen=True):
    """The request is delayed."""

    seconds: float


class CallbackFault(msgspec.Struct, frozen=True):
    """A callback runs, and the connection breaks; ``after``: after the server has executed the request."""

    happen: Callable[[], None]
    after: bool


Fault = ErrorResponse | NoResponse | BrokenConnection | LateRequest | Delay | CallbackFault
Script = Callable[[Request], Fault | None]

CONFLICT = ErrorResponse(409, "Conflict")
EXPIRED = ErrorResponse(410, "Expired")
BUSY = ErrorResponse(429, "TooManyRequests", retry_after_s=1)
FAILED = ErrorResponse(500, "InternalError")
FAILED_AFTER_EXECUTION = ErrorResponse(500, "InternalError", after=True)


def request_of(method: str, path: str, *, watch: bool) -> Request:
    """Return the request in RBAC terms; outside the core API the kind is the whole path."""
    found = _PATH.fullmatch(path)
    if found is None:
        return Request(method.lower(), path)
    kind, name, part = found["kind"], found["name"] or "", found["part"]
    verb = _VERBS.get(method)
    if method == "DELETE":
        verb = "delete" if name else "deletecollection"
    elif method == "GET":
        verb = "watch" if watch else "get" if name else "list"
    return Request(verb or method.lower(), f"{kind}/{part}" if part else kind, name)


def nothing(request: Request) -> None:
    """Inject no faults."""


class NthRequestFault:
    """Injects a fault into the ``number``-th request for ``what``."""

    def __init__(self, number: int, what: str, fault: Fault) -> None:
        self._left = number
        self._what = what
        self._fault = fault

    def __call__(self, request: Request) -> Fault | None:
        if request.what != self._what:
            return None
        self._left -= 1
        return self._fault if self._left == 0 else None

    @property
    def happened(self) -> bool:
        return self._left <= 0


class RandomFaults:
    """Injects ``faults`` into a share of the writes, and ``of_watches`` into a share of the watches, at random by seed."""

    def __init__(
        self, seed: int, *, share: float, faults: Sequence[Fault], of_watches: Sequence[Fault]
    ) -> None:
        self._chance = random.Random(seed)
        self._share = share
        self._faults = faults
        self._of_watches = of_watches
        self.happened: list[tuple[str, Fault]] = []

    def __call__(self, request: Request) -> Fault | None:
        some = self._faults if request.is_write else self._of_watches if request.verb == "watch" else ()
        if not some or self._chance.random() >= self._share:
            return None
        fault = self._chance.choice(some)
        self.happened.append((request.what, fault))
        return fault


class KillPoints:
    """Calls ``kill`` once at each of ``points``, before or after the next matching request, and once for each of the ``lives``."""

    def __init__(
        self, kill: Callable[[], None], points: Collection[tuple[str, bool]], *, lives: Callable[[], int]
    ) -> None:
        self._kill = kill
        self._lives = lives
        self._doomed = 0
        self.left = list(points)

    def __call__(self, request: Request) -> Fault | None:
        if self._doomed == self._lives():
            return None
        for point in self.left:
            what, after = point
            if what == request.what:
                self.left.remove(point)
                self._doomed = self._lives()
                return CallbackFault(self._kill, after)
        return None
