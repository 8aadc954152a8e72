"""What can go wrong between a client and an API server, and scripts that say when it does.

A fault is one of a few plain values; what carries it out is ``front``. A script is asked about every request before it is passed on.
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
    """A request as Kubernetes' rules of access name it: ``create pods``, ``watch nodes``, ``deletecollection services``."""

    verb: str
    kind: str
    name: str = ""

    @property
    def what(self) -> str:
        return f"{self.verb} {self.kind}"

    @property
    def is_write(self) -> bool:
        return self.verb not in {"get", "list", "watch"}


class HttpResponse(msgspec.Struct, frozen=True):
    """The server answers with this status; ``after``: it has done what it was asked for all the same."""

    status: int
    reason: str
    after: bool = False
    retry_after_s: int | None = None


class Silence(msgspec.Struct, frozen=True):
    """The server never answers; ``after``: it has done what it was asked for all the same."""

    after: bool


class Break(msgspec.Struct, frozen=True):
    """The connection breaks; ``after``: when the server has done what it was asked for. A watch breaks after ``seconds``."""

    after: bool
    seconds: float = 0.0


class Late(msgspec.Struct, frozen=True):
    """The connection breaks at once, and the server gets the request some seconds after that."""

    seconds: float


class Delay(msgspec.Struct, frozen=True):
    """All goes well, some seconds later."""

    seconds: float


class Call(msgspec.Struct, frozen=True):
    """Something happens, and the connection breaks; ``after``: when the server has done what it was asked for."""

    happen: Callable[[], None]
    after: bool


Fault = HttpResponse | Silence | Break | Late | Delay | Call
Script = Callable[[Request], Fault | None]

CONFLICT = HttpResponse(409, "Conflict")
EXPIRED = HttpResponse(410, "Expired")
BUSY = HttpResponse(429, "TooManyRequests", retry_after_s=1)
BROKEN = HttpResponse(500, "InternalError")
BROKEN_AFTER_ALL = HttpResponse(500, "InternalError", after=True)


def request_of(method: str, path: str, *, watch: bool) -> Request:
    """What a request asks for; a kind that is none of the core's has the whole path for its kind."""
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
    """All goes well."""


class Nth:
    """The ``number``-th request for ``what`` has this fault, and no other."""

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


class Dice:
    """A part of the writes has one of ``faults``, and a part of the watches one of ``of_watches``: drawn by seed and in turn."""

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


class Kills:
    """``kill`` at each of ``points`` once: before and after the next request for what each names, one for each of the ``lives``."""

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
                return Call(self._kill, after)
        return None
