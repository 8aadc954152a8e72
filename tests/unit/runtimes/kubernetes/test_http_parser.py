"""Incremental parsing of HTTP responses."""

import pytest

from muster_runtimes.kubernetes.http_client import BadResponse, HttpResponse, ResponseParser

WHOLE = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nRetry-After: 3\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n1;note=x\r\n,\r\n6\r\n world\r\n0\r\nTrailer: y\r\n\r\n"
)


def read(data: bytes, *, piece: int, has_body: bool = True) -> HttpResponse | None:
    reader = ResponseParser(has_body=has_body)
    answer = None
    for at in range(0, len(data), piece):
        assert answer is None
        answer = reader.feed(data[at : at + piece])
    return answer


@pytest.mark.parametrize("piece", [1, 2, 7, 1000])
def test_content_length_ends_the_body(piece: int) -> None:
    answer = read(WHOLE, piece=piece)
    assert answer == HttpResponse(201, {"content-length": "5", "retry-after": "3"}, b"hello", False)


@pytest.mark.parametrize("piece", [1, 3, 11, 1000])
def test_chunks_are_joined(piece: int) -> None:
    answer = read(CHUNKED, piece=piece)
    assert answer is not None
    assert answer.data == b"hello, world"


def test_many_long_chunks_are_joined() -> None:
    chunk = b"x" * 50_000
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for _ in range(20)) + b"0\r\n\r\n"
    answer = read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body, piece=16_384)
    assert answer is not None
    assert answer.data == chunk * 20


def test_informational_responses_are_skipped() -> None:
    answer = read(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + WHOLE, piece=10)
    assert answer is not None
    assert (answer.status, answer.data) == (201, b"hello")


def test_a_response_without_a_length_ends_with_the_connection() -> None:
    reader = ResponseParser(has_body=True)
    assert reader.feed(b"HTTP/1.0 200 OK\r\n\r\nall there") is None
    answer = reader.end()
    assert answer is not None
    assert answer.data == b"all there"
    assert answer.is_last


def test_an_incomplete_response_is_not_returned() -> None:
    reader = ResponseParser(has_body=True)
    assert reader.feed(WHOLE[:-1]) is None
    assert reader.end() is None


def test_connection_close_marks_the_last_response() -> None:
    answer = read(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", piece=1000)
    assert answer is not None
    assert answer.is_last


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nlong\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
        b"x" * 70_000,
    ],
)
def test_an_invalid_response_raises_an_error(data: bytes) -> None:
    with pytest.raises(BadResponse):
        read(data, piece=len(data))
