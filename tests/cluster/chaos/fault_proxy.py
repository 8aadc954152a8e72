"""An HTTPS proxy in proxy of an API server that injects the faults of a script.

Failures of the network and of the server are exact: for example, the third creation of a pod is executed and not answered. The client under
test sees only an address and a certificate.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web
from faults import (
    BrokenConnection,
    CallbackFault,
    Delay,
    ErrorResponse,
    LateRequest,
    NoResponse,
    Request,
    Script,
    nothing,
    request_of,
)
from multidict import CIMultiDict, CIMultiDictProxy

from muster_testing.cluster import Cluster
from muster_testing.cluster.access import write_kubeconfig

_OF_A_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "host", "content-length"}
)
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5)


Failure = ErrorResponse | NoResponse | BrokenConnection | LateRequest | CallbackFault


class FaultProxy:
    """The proxy of the API server of ``cluster``; ``script`` may be changed at any time."""

    def __init__(self, *, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._late: set[asyncio.Task[None]] = set()
        self._watching: dict[int, web.Request] = {}
        self._session: aiohttp.ClientSession | None = None
        self.script: Script = nothing
        self.seen: Counter[str] = Counter()
        self.kubeconfig = folder / "kubeconfig"

    @classmethod
    @asynccontextmanager
    async def before(cls, cluster: Cluster, folder: Path) -> AsyncGenerator[FaultProxy]:
        """Serve until the end of the block."""
        proxy = cls(cluster=cluster, folder=folder)
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = await asyncio.to_thread(_certificate, folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        application = web.Application(client_max_size=2**26)
        application.router.add_route("*", "/{path:.*}", proxy._serve)
        runner = web.AppRunner(application, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        connector = aiohttp.TCPConnector(ssl=cluster.access.context(), limit=0)
        try:
            # Add no headers that the client did not send.
            async with aiohttp.ClientSession(
                connector=connector, auto_decompress=False, skip_auto_headers=("Accept", "Accept-Encoding")
            ) as session:
                proxy._session = session
                site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
                await site.start()
                port = runner.addresses[0][1]
                url = f"https://127.0.0.1:{port}"
                write_kubeconfig(proxy.kubeconfig, url=url, ca_file=certificate, token=cluster.token)
                yield proxy
                for task in proxy._late:
                    task.cancel()
        finally:
            await runner.cleanup()

    def cut_watches(self) -> int:
        """BrokenConnection the connections of all watches, and return their number."""
        watching = list(self._watching.values())
        for request in watching:
            _abort(request)
        return len(watching)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        parsed = request_of(request.method, request.path, watch="watch" in request.query)
        self.seen[parsed.what] += 1
        body = await request.read()
        fault = self.script(parsed)
        try:
            if isinstance(fault, BrokenConnection) and parsed.verb == "watch":
                asyncio.get_running_loop().call_later(fault.seconds, _abort, request)
            elif isinstance(fault, Delay):
                await asyncio.sleep(fault.seconds)
            elif fault is not None:
                return await self._fail(request, body, fault)
            return await self._pass_on(request, body, parsed)
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            # The server or the client is gone, so there is no response.
            _abort(request)
            return web.Response(status=502)

    async def _fail(self, request: web.Request, body: bytes, fault: Failure) -> web.StreamResponse:
        if isinstance(fault, LateRequest):
            task = asyncio.create_task(self._do_late(request, body, fault.seconds))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        elif fault.after:
            await self._do(request, body)
        if isinstance(fault, ErrorResponse):
            return _answer(fault)
        if isinstance(fault, NoResponse):
            await asyncio.Event().wait()
        if isinstance(fault, CallbackFault):
            fault.happen()
        _abort(request)
        return web.Response(status=502)

    async def _do_late(self, request: web.Request, body: bytes, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._do(request, body)

    async def _do(self, request: web.Request, body: bytes) -> None:
        async with self._ask(request, body) as answer:
            await answer.read()

    async def _pass_on(self, request: web.Request, body: bytes, parsed: Request) -> web.StreamResponse:
        async with self._ask(request, body) as answer:
            if parsed.verb != "watch" and "follow" not in request.query:
                return web.Response(
                    status=answer.status, headers=_kept(answer.headers), body=await answer.read()
                )
            passed = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
            await passed.prepare(request)
            self._watching[id(request)] = request
            try:
                async for chunk in answer.content.iter_any():
                    await passed.write(chunk)
            finally:
                del self._watching[id(request)]
            await passed.write_eof()
            return passed

    def _ask(self, request: web.Request, body: bytes) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        assert self._session is not None
        return self._session.request(
            request.method,
            self._cluster.url + request.path_qs,
            data=body or None,
            headers=_kept(request.headers),
            timeout=_TIMEOUT,
        )


def _kept(headers: CIMultiDict[str] | CIMultiDictProxy[str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _OF_A_HOP)


def _answer(fault: ErrorResponse) -> web.Response:
    line = {"kind": "Status", "code": fault.status, "reason": fault.reason, "message": "so the script has it"}
    headers = {} if fault.retry_after_s is None else {"Retry-After": str(fault.retry_after_s)}
    return web.json_response(line, status=fault.status, headers=headers)


def _abort(request: web.Request) -> None:
    if isinstance(request.transport, asyncio.WriteTransport):
        request.transport.abort()


def _certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "proxy.crt", folder / "proxy.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=127.0.0.1",
    ]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return certificate, key
