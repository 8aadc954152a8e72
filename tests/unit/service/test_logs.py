import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest

from muster_service.logs import configure_logs, fields
from muster_service.tracing import Telemetry

Lines = Callable[[], list[dict[str, object]]]


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level, logging.raiseExceptions)
    yield io.StringIO()
    root.handlers[:], level, logging.raiseExceptions = before
    root.setLevel(level)
    logging.captureWarnings(False)


@pytest.fixture
def lines(stream: io.StringIO) -> Lines:
    configure_logs(service="scaler", instance="scaler-0", stream=stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_record_is_one_json_object(lines: Lines):
    logging.getLogger("part").info("placed %d", 3, extra=fields(job="a", seconds=0.5))

    (line,) = lines()
    assert str(line.pop("ts")).endswith("Z")
    assert line == {
        "level": "info",
        "service": "scaler",
        "instance": "scaler-0",
        "msg": "placed 3",
        "logger": "part",
        "job": "a",
        "seconds": 0.5,
    }


def test_a_log_line_contains_its_span(lines: Lines):
    telemetry = Telemetry.start("scaler", "scaler-0")
    with telemetry.span("decide") as live:
        logging.getLogger("part").info("within")

    (line,) = lines()
    assert (line["trace_id"], line["span_id"]) == (live.ref.trace_id, live.ref.span_id)


def test_an_exception_stays_on_its_line(lines: Lines):
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("part").exception("failed")

    (line,) = lines()
    assert "ValueError: no" in str(line["exception"])


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    "value",
    [object(), Unprintable(), "\ud800", {(1, 2): 3}, 1 << 80, float("nan"), b"\xff", {1, 2}, Exception("x")],
)
def test_no_field_can_break_a_line(lines: Lines, value: object):
    logging.getLogger("part").info("odd", extra=fields(value=value))

    (line,) = lines()
    assert line["msg"] == "odd"
    assert "value" in line


def test_no_message_can_break_a_line(lines: Lines):
    template = "%d is a number"
    logging.getLogger("part").info(template, "this one")

    (line,) = lines()
    assert "this one" in str(line["msg"])


def test_a_field_cannot_pass_for_one_of_the_lines_own(lines: Lines):
    logging.getLogger("part").info("true", extra=fields(msg="false", level="false"))

    (line,) = lines()
    assert (line["msg"], line["msg_"], line["level_"]) == ("true", "false", "false")


def test_warnings_of_libraries_are_logged(lines: Lines):
    logging.getLogger("nats.aio").info("chatter")
    logging.getLogger("nats.aio").warning("trouble")

    assert [line["msg"] for line in lines()] == ["trouble"]


def test_text_is_for_people(stream: io.StringIO):
    configure_logs(service="scaler", instance="scaler-0", log_format="text", stream=stream)

    logging.getLogger("part").warning("odd", extra=fields(job="a", why="no capacity"))

    assert stream.getvalue().endswith("warning scaler: odd job=a why='no capacity'\n")


def test_a_closed_stream_is_borne(lines: Lines, stream: io.StringIO):
    stream.close()

    logging.getLogger("part").info("unseen")
