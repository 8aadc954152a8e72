"""Spans in a SQLite database of bounded size, deduplicated and indexed by trace.

A span is stored as received, in protobuf; the resource and scope that it shares with others are stored once. Above the
bound, the traces that were updated longest ago are removed, so that a running job keeps its history.
"""

import contextlib
import hashlib
import logging
import sqlite3
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

from muster_service.logs import fields

log = logging.getLogger(__name__)

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE origins (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, payload BLOB NOT NULL);
CREATE TABLE spans (
    trace_id BLOB NOT NULL, span_id BLOB NOT NULL, origin INTEGER NOT NULL, payload BLOB NOT NULL,
    PRIMARY KEY (trace_id, span_id)
) WITHOUT ROWID;
CREATE TABLE traces (trace_id BLOB PRIMARY KEY, bytes INTEGER NOT NULL, touched INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX traces_by_age ON traces (touched);
"""
_ROW_OVERHEAD_BYTES = 64
_TRACE_ID_BYTES = 16
_SPAN_ID_BYTES = 8
_FILE = "traces.db"


class TraceStore:
    """The spans in a directory, at most `max_bytes` (half of it of one trace). Methods block; call them from one thread at a time."""

    def __init__(self, *, directory: Path, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._db = _open(directory)
        self._bytes, self._turn = self._db.execute(
            "SELECT coalesce(sum(bytes), 0), coalesce(max(touched), 0) FROM traces"
        ).fetchone()

    @property
    def size_bytes(self) -> int:
        """The size of the stored spans."""
        return self._bytes

    def add(self, batch: Iterable[ResourceSpans]) -> int:
        """Store the spans of an export durably; return the number rejected for invalid ids or a too large trace.

        A span with a known trace and span id replaces the stored one.
        """
        self._turn += 1
        grown: defaultdict[bytes, int] = defaultdict(int)
        refused = 0
        with self._transaction():
            for resource in batch:
                for scope in resource.scope_spans:
                    origin = self._origin(resource, scope)
                    for span in scope.spans:
                        if not self._put(span, origin, grown):
                            refused += 1
            self._account(grown)
            self._bytes += sum(grown.values())
            dropped = self._drop_oldest()
        if dropped:
            log.info("removed the oldest traces", extra=fields(traces=dropped))
        return refused

    def trace(self, trace_id: bytes) -> TracesData | None:
        """Return the spans of a trace, grouped by resource and scope, by start time; None if there are none."""
        rows: list[tuple[int, bytes]] = self._db.execute(
            "SELECT origin, payload FROM spans WHERE trace_id = ?", (trace_id,)
        ).fetchall()
        if not rows:
            return None
        spans: defaultdict[int, list[Span]] = defaultdict(list)
        for origin, payload in rows:
            spans[origin].append(Span.FromString(payload))
        return TracesData(resource_spans=[self._with_spans(origin, group) for origin, group in spans.items()])

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None]:
        before = self._bytes
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._bytes = before
            # SQLite rolls back by itself after some errors, such as a full disk.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _origin(self, resource: ResourceSpans, scope: ScopeSpans) -> int:
        shared = ResourceSpans(
            resource=resource.resource,
            schema_url=resource.schema_url,
            scope_spans=[ScopeSpans(scope=scope.scope, schema_url=scope.schema_url)],
        ).SerializeToString(deterministic=True)
        digest = hashlib.sha256(shared).digest()
        self._db.execute("INSERT OR IGNORE INTO origins (digest, payload) VALUES (?, ?)", (digest, shared))
        return self._db.execute("SELECT id FROM origins WHERE digest = ?", (digest,)).fetchone()[0]

    def _put(self, span: Span, origin: int, grown: defaultdict[bytes, int]) -> bool:
        if len(span.trace_id) != _TRACE_ID_BYTES or len(span.span_id) != _SPAN_ID_BYTES:
            return False
        payload = span.SerializeToString()
        before = self._db.execute(
            "SELECT length(payload) FROM spans WHERE trace_id = ? AND span_id = ?",
            (span.trace_id, span.span_id),
        ).fetchone()
        growth = len(payload) - before[0] if before else len(payload) + _ROW_OVERHEAD_BYTES
        if self._size(span.trace_id) + grown[span.trace_id] + growth > self._max_bytes // 2:
            return False
        self._db.execute(
            "INSERT OR REPLACE INTO spans (trace_id, span_id, origin, payload) VALUES (?, ?, ?, ?)",
            (span.trace_id, span.span_id, origin, payload),
        )
        grown[span.trace_id] += growth
        return True

    def _size(self, trace_id: bytes) -> int:
        row = self._db.execute("SELECT bytes FROM traces WHERE trace_id = ?", (trace_id,)).fetchone()
        return row[0] if row else 0

    def _account(self, grown: dict[bytes, int]) -> None:
        self._db.executemany(
            "INSERT INTO traces (trace_id, bytes, touched) VALUES (?, ?, ?)"
            " ON CONFLICT (trace_id) DO UPDATE SET bytes = bytes + excluded.bytes, touched = excluded.touched",
            [(trace_id, growth, self._turn) for trace_id, growth in grown.items()],
        )

    def _drop_oldest(self) -> int:
        dropped = 0
        while self._bytes > self._max_bytes:
            trace_id, size = self._db.execute(
                "SELECT trace_id, bytes FROM traces ORDER BY touched LIMIT 1"
            ).fetchone()
            self._db.execute("DELETE FROM spans WHERE trace_id = ?", (trace_id,))
            self._db.execute("DELETE FROM traces WHERE trace_id = ?", (trace_id,))
            self._bytes -= size
            dropped += 1
        return dropped

    def _with_spans(self, origin: int, spans: list[Span]) -> ResourceSpans:
        (payload,) = self._db.execute("SELECT payload FROM origins WHERE id = ?", (origin,)).fetchone()
        resource = ResourceSpans.FromString(payload)
        resource.scope_spans[0].spans.extend(sorted(spans, key=lambda span: span.start_time_unix_nano))
        return resource


def _open(directory: Path) -> sqlite3.Connection:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / _FILE
    try:
        return _prepared(path)
    except sqlite3.DatabaseError as damaged:
        if isinstance(damaged, sqlite3.OperationalError):
            raise
        aside = path.with_suffix(".damaged")
        log.warning(
            "the trace database is damaged; moved it aside and created a new one",
            extra=fields(path=str(aside), error=str(damaged)),
        )
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        path.replace(aside)
        return _prepared(path)


def _prepared(path: Path) -> sqlite3.Connection:
    # One thread at a time uses the store, but not the thread that opened it.
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA auto_vacuum = FULL")
        db.execute("PRAGMA journal_mode = WAL")
        # A crash of the process loses nothing; a power cut may lose the last spans, which does not justify a sync for
        # each.
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA journal_size_limit = 4194304")
        if db.execute("PRAGMA user_version").fetchone()[0] != _SCHEMA_VERSION:
            db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_SCHEMA_VERSION}; COMMIT;")
        db.execute("DELETE FROM origins WHERE id NOT IN (SELECT origin FROM spans)")
    except sqlite3.Error:
        db.close()
        raise
    return db
