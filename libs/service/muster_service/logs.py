"""Logs: one JSON object a line on stderr, with the current trace.

Built on `logging`, so that libraries' messages appear in the same form. A text format is for terminals. A field that
cannot be encoded is shown by its repr: a log call must never fail.

    log = logging.getLogger(__name__)
    log.info("lease taken", extra=fields(key="leader/a", ttl_s=3))
"""

import logging
import sys
import time
from collections.abc import Mapping
from typing import Literal, TextIO, cast

import msgspec

from muster_service.trace_context import current_ref

LogFormat = Literal["json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]

_ATTRIBUTE = "muster_fields"
_CHATTY = ("nats", "grpc", "asyncio", "opentelemetry")
_RESERVED = frozenset(
    {"ts", "level", "service", "instance", "msg", "logger", "trace_id", "span_id", "exception"}
)


def fields(**values: object) -> dict[str, object]:
    """Return structured fields for `extra=` of a log call."""
    return {_ATTRIBUTE: values}


def say(logger: logging.Logger, message: str, **values: object) -> None:
    """Log a message at info, whatever the configured level is."""
    extra = fields(**values)
    logger.handle(logger.makeRecord(logger.name, logging.INFO, "", 0, message, (), None, extra=extra))


def configure_logs(
    *,
    service: str,
    instance: str,
    level: LogLevel = "info",
    log_format: LogFormat = "json",
    stream: TextIO | None = None,
) -> None:
    """Send every log record of the process to `stream` (default stderr), replacing existing handlers.

    Libraries log from WARNING on, or at any level if `level` is debug.
    """
    formatter = (
        JsonFormatter(service=service, instance=instance) if log_format == "json" else TextFormatter(service)
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(
            logging.NOTSET if level == "debug" else max(root.level, logging.WARNING)
        )
    # With a closed stderr each log call would print a traceback to it.
    logging.raiseExceptions = False
    # No line shows them, and computing them is half of a line's cost.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # as logging's own documentation advises
    logging.captureWarnings(True)


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object: ts, level, service, instance, msg, logger, trace ids, then its fields."""

    def __init__(self, *, service: str, instance: str) -> None:
        super().__init__()
        self._service = service
        self._instance = instance

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        line: dict[str, object] = {
            "ts": _timestamp(record),
            "level": record.levelname.lower(),
            "service": self._service,
            "instance": self._instance,
            "msg": _message(record),
            "logger": record.name,
        }
        if ref := current_ref():
            line["trace_id"] = ref.trace_id
            line["span_id"] = ref.span_id
        if exception := _exception(self, record):
            line["exception"] = exception
        for name, value in _fields_of(record).items():
            line[f"{name}_" if name in _RESERVED else name] = value
        return _encode(line)


class TextFormatter(logging.Formatter):
    """Formats a record for a terminal: time, level, service, message, then `name=value`."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Return the text, with the stack trace on further lines."""
        pairs = "".join(f" {name}={_text(value)}" for name, value in _fields_of(record).items())
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        head = f"{clock}.{int(record.msecs):03d} {record.levelname.lower():<7} {self._service}: {_message(record)}{pairs}"
        exception = _exception(self, record)
        return f"{head}\n{exception}" if exception else head


def _timestamp(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as failure:
        return f"{record.msg!r} % {_repr(record.args)} ({failure})"


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    if record.exc_info and record.exc_info[0]:
        return formatter.formatException(record.exc_info)
    return formatter.formatStack(record.stack_info) if record.stack_info else None


def _fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    return cast("Mapping[str, object]", getattr(record, _ATTRIBUTE, {}))


def _encode(line: dict[str, object]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=_repr).decode()
    except Exception:
        return msgspec.json.encode({name: _plain(value) for name, value in line.items()}).decode()


def _plain(value: object) -> str:
    text = value if type(value) is str else _repr(value)
    return text.encode("utf-8", "backslashreplace").decode()


def _text(value: object) -> str:
    text = value if type(value) is str else _repr(value)
    return repr(text) if text == "" or any(mark in text for mark in " \n\t=") else text


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
