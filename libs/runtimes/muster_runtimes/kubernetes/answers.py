"""An HTTP answer, read as its bytes come: the head, then a body that is as long as the head says, or comes in chunks."""

from __future__ import annotations

import msgspec

_END_OF_HEAD = b"\r\n\r\n"
_LONGEST_HEAD = 64 * 1024
_LONGEST_LINE = 4 * 1024
_WITHOUT_BODY = frozenset({204, 304})
_FIRST_FINAL = 200


class BadAnswer(Exception):
    """What came is no HTTP."""


class Answer(msgspec.Struct, frozen=True):
    """``headers`` by their names in small letters. ``is_last``: the connection ends with it."""

    status: int
    headers: dict[str, str]
    data: bytes
    is_last: bool


class AnswerReader:
    """Reads one answer; ``has_body`` is False for what answers HEAD."""

    def __init__(self, *, has_body: bool) -> None:
        self._has_body = has_body
        self._received = bytearray()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._is_last = False
        self._body: list[bytes] = []
        self._at = 0
        self._length: int | None = None
        self._chunked = False

    def feed(self, data: bytes) -> Answer | None:
        """Take some bytes; the answer once it is whole. Raises ``BadAnswer``."""
        self._received += data
        while not self._status:
            end = self._received.find(_END_OF_HEAD)
            if end < 0:
                if len(self._received) > _LONGEST_HEAD:
                    raise BadAnswer("its head does not end")
                return None
            self._read_head(bytes(self._received[:end]))
            del self._received[: end + len(_END_OF_HEAD)]
        if self._chunked:
            return self._read_chunks()
        if self._length is None or len(self._received) < self._length:
            return None
        if len(self._received) > self._length:
            raise BadAnswer("it is longer than it says")
        return self._whole(bytes(self._received))

    def end(self) -> Answer | None:
        """Nothing more comes: the answer, where that is how it ends."""
        if not self._status or self._chunked or self._length is not None:
            return None
        return self._whole(bytes(self._received))

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise BadAnswer(f"it begins with {first[:80]!r}")
        status = int(rest[:3])
        if status < _FIRST_FINAL:
            # The answer itself is still to come.
            return
        pairs = (line.partition(":") for line in lines)
        self._headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self._status = status
        self._is_last = version == "HTTP/1.0" or self._headers.get("connection", "").lower() == "close"
        self._measure()

    def _measure(self) -> None:
        said = self._headers.get("content-length", "")
        if not self._has_body or self._status in _WITHOUT_BODY:
            self._length = 0
        elif "chunked" in self._headers.get("transfer-encoding", "").lower():
            self._chunked = True
        elif said.isdecimal():
            self._length = int(said)
        else:
            self._is_last = True

    def _read_chunks(self) -> Answer | None:
        received = self._received
        while True:
            end = received.find(b"\r\n", self._at)
            if end < 0:
                if len(received) - self._at > _LONGEST_LINE:
                    raise BadAnswer("the length of a chunk does not end")
                break
            size = _chunk_size(bytes(received[self._at : end]))
            if not size:
                return self._after_chunks(end)
            begin = end + 2
            if len(received) < begin + size + 2:
                break
            self._body.append(bytes(received[begin : begin + size]))
            self._at = begin + size + 2
        # What has been read is not moved about again with every piece that comes.
        if self._at > _LONGEST_HEAD:
            del received[: self._at]
            self._at = 0
        return None

    def _after_chunks(self, end: int) -> Answer | None:
        """Behind the last chunk there may be more headers; an empty line ends them."""
        rest = bytes(self._received[end:])
        if rest == b"\r\n\r\n" or rest.endswith(_END_OF_HEAD):
            return self._whole(b"".join(self._body))
        if len(rest) > _LONGEST_HEAD:
            raise BadAnswer("it does not end")
        return None

    def _whole(self, data: bytes) -> Answer:
        return Answer(self._status, self._headers, data, self._is_last)


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise BadAnswer("the length of a chunk is no number") from None
