"""An HTTPS server in front of an API server, which passes everything on but for what a script says.

It makes failures of the network and of the server exact: a write that was done and not answered is one request, chosen by its number.
The client under test knows nothing of it but an address and a certificate.
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
from faults import Break, Call, Delay, HttpResponse, Late, Request, Script, Silence, nothing, request_of
from multidict import CIMultiDict, CIMultiDictProxy

from muster_testing.cluster import Cluster
from muster_testing.cluster.credentials import write_kubeconfig

_OF_A_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "host", "content-length"}
)
_PATIENCE = aiohttp.ClientTimeout(total=None, sock_connect=5)


Failure = HttpResponse | Silence | Break | Late | Call


class Front:
    """What stands before the API server of ``cluster``; ``script`` may be changed at any moment."""

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
    async def before(cls, cluster: Cluster, folder: Path) -> AsyncGenerator[Front]:
        """A front that serves until the end of the block."""
        front = cls(cluster=cluster, folder=folder)
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = await asyncio.to_thread(_certificate, folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        application = web.Application(client_max_size=2**26)
        application.router.add_route("*", "/{path:.*}", front._serve)
        runner = web.AppRunner(application, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        connector = aiohttp.TCPConnector(ssl=cluster.access.context(), limit=0)
        try:
            # What the client did not ask for is not asked for in its name.
            async with aiohttp.ClientSession(
                connector=connector, auto_decompress=False, skip_auto_headers=("Accept", "Accept-Encoding")
            ) as session:
                front._session = session
                site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
                await site.start()
                port = runner.addresses[0][1]
                url = f"https://127.0.0.1:{port}"
                write_kubeconfig(front.kubeconfig, url=url, ca_file=certificate, token=cluster.token)
                yield front
                for task in front._late:
                    task.cancel()
        finally:
            await runner.cleanup()

    def cut_watches(self) -> int:
        """Break the connections of all watches; how many there were."""
        watching = list(self._watching.values())
        for request in watching:
            _abort(request)
        return len(watching)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        stop_requested = request_of(request.method, request.path, watch="watch" in request.query)
        self.seen[stop_requested.what] += 1
        body = await request.read()
        fault = self.script(stop_requested)
        try:
            if isinstance(fault, Break) and stop_requested.verb == "watch":
                asyncio.get_running_loop().call_later(fault.seconds, _abort, request)
            elif isinstance(fault, Delay):
                await asyncio.sleep(fault.seconds)
            elif fault is not None:
                return await self._fail(request, body, fault)
            return await self._pass_on(request, body, stop_requested)
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            # The server is away, or whoever asked is: neither gets an answer.
            _abort(request)
            return web.Response(status=502)

    async def _fail(self, request: web.Request, body: bytes, fault: Failure) -> web.StreamResponse:
        if isinstance(fault, Late):
            task = asyncio.create_task(self._do_late(request, body, fault.seconds))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        elif fault.after:
            await self._do(request, body)
        if isinstance(fault, HttpResponse):
            return _answer(fault)
        if isinstance(fault, Silence):
            await asyncio.Event().wait()
        if isinstance(fault, Call):
            fault.happen()
        _abort(request)
        return web.Response(status=502)

    async def _do_late(self, request: web.Request, body: bytes, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._do(request, body)

    async def _do(self, request: web.Request, body: bytes) -> None:
        async with self._ask(request, body) as answer:
            await answer.read()

    async def _pass_on(
        self, request: web.Request, body: bytes, stop_requested: Request
    ) -> web.StreamResponse:
        async with self._ask(request, body) as answer:
            if stop_requested.verb != "watch" and "follow" not in request.query:
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
            timeout=_PATIENCE,
        )


def _kept(headers: CIMultiDict[str] | CIMultiDictProxy[str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _OF_A_HOP)


def _answer(fault: HttpResponse) -> web.Response:
    said = {"kind": "Status", "code": fault.status, "reason": fault.reason, "message": "so the script has it"}
    patience = {} if fault.retry_after_s is None else {"Retry-After": str(fault.retry_after_s)}
    return web.json_response(said, status=fault.status, headers=patience)


def _abort(request: web.Request) -> None:
    if isinstance(request.transport, asyncio.WriteTransport):
        request.transport.abort()


def _certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "front.crt", folder / "front.key"
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
