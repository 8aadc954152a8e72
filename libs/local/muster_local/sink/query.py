"""The part of Jaeger's query API v3 that a command line needs: one trace by its id.

Answers and refusals have the shapes that Jaeger gives them, so that a client need not know which of the two it asks.
"""

import asyncio
import re
from concurrent.futures import Executor

from muster_local.sink.otlp_json import traces_to_json
from muster_local.sink.store import TraceStore
from muster_service.http_server import Request, Response, json_response

_TRACE = re.compile(r"/api/v3/traces/([^/]+)")
_TRACE_ID = re.compile(r"[0-9a-fA-F]{1,32}")


class QueryApi:
    """Answers `GET /api/v3/traces/{trace_id}` from a store.

    Args:
        store: is only used in `executor`.
        executor: of one thread.
    """

    def __init__(self, *, store: TraceStore, executor: Executor) -> None:
        self._store = store
        self._executor = executor

    async def __call__(self, request: Request) -> Response:
        """Answer one request: 200 with the trace, 400 for a bad id, 404 for an unknown trace or path."""
        matched = _TRACE.fullmatch(request.path)
        if matched is None:
            return _refusal(404, "there is no such page; ask for /api/v3/traces/{trace_id}")
        if not _TRACE_ID.fullmatch(matched[1]):
            return _refusal(400, "malformed parameter trace_id: it is up to 32 hexadecimal digits")
        trace_id = bytes.fromhex(matched[1].zfill(32))
        found = await asyncio.get_running_loop().run_in_executor(self._executor, self._json_of, trace_id)
        return found or _refusal(404, "No traces found")

    def _json_of(self, trace_id: bytes) -> Response | None:
        traces = self._store.trace(trace_id)
        return json_response(200, {"result": traces_to_json(traces)}) if traces else None


def _refusal(status: int, message: str) -> Response:
    return json_response(status, {"error": {"httpCode": status, "message": message}})
