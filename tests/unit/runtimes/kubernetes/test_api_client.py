"""The API client and the reflector against a scripted server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from muster_pod_launcher.kubernetes_metrics import PrometheusRequestMetrics
from muster_runtimes.kubernetes import ApiClient, Credentials, RateLimiter, RequestMetrics
from muster_runtimes.kubernetes.errors import (
    AlreadyExists,
    ApiUnavailable,
    Conflict,
    KubernetesApiError,
    ObjectNotFound,
    OutcomeUnknown,
    RequestRejected,
    ResourceVersionExpired,
)
from muster_runtimes.kubernetes.objects import MAGIC, Pod
from muster_runtimes.kubernetes.reflector import PROTOBUF_EVENTS, Reflector, WatchTarget
from muster_runtimes.kubernetes.v1 import pods_pb2 as pb
from muster_service.metrics import Metrics

HttpResponse = Callable[[web.Request], web.StreamResponse]


async def _nothing() -> None:
    return


class Server:
    """Answers each request with the next scripted response; the last one repeats."""

    def __init__(self) -> None:
        self.answers: list[HttpResponse] = []
        self.requests: list[web.Request] = []
        self.stop: Callable[[], Awaitable[None]] = _nothing

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer(request)


@contextlib.asynccontextmanager
async def serving(
    path: Path, *, timeout_s: float = 30.0, metrics: RequestMetrics | None = None
) -> AsyncGenerator[tuple[Server, ApiClient]]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    server.stop = runner.cleanup
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://{host}:{port}"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    (path / "kubeconfig").write_bytes(msgspec.json.encode(config))
    credentials = Credentials(kubeconfig=path / "kubeconfig")
    await credentials.load()
    api = ApiClient(
        credentials=credentials,
        limits=RateLimiter(in_flight=2, per_second=0),
        timeout_s=timeout_s,
        metrics=metrics or RequestMetrics(),
    )
    try:
        yield server, api
    finally:
        await api.aclose()
        await runner.cleanup()


def status(code: int, reason: str = "", **headers: str) -> HttpResponse:
    content = {"code": code, "reason": reason, "message": f"{code} {reason}"}
    kept = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: web.json_response(content, status=code, headers=kept)


def found(content: object) -> HttpResponse:
    return lambda _: web.json_response(content)


def lines(*events: object) -> HttpResponse:
    body = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
    return lambda _: web.Response(body=body)


def pod_named(name: str, version: int) -> dict[str, object]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}}


def a_list(version: int, *pods: object, more: str = "") -> dict[str, object]:
    return {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(pods)}


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", RequestRejected),
        (401, "Unauthorized", ApiUnavailable),
        (403, "Forbidden", RequestRejected),
        (404, "NotFound", ObjectNotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", ResourceVersionExpired),
        (422, "Invalid", RequestRejected),
        (500, "InternalError", OutcomeUnknown),
        (504, "Timeout", OutcomeUnknown),
    ],
)
async def test_each_status_of_a_write_raises_its_own_error(
    tmp_path: Path, code: int, reason: str, kind: type[KubernetesApiError]
) -> None:
    async with serving(tmp_path) as (server, api):
        server.answers = [status(code, reason)]
        with pytest.raises(kind) as refusal:
            await api.create("/api/v1/pods", {}, Pod)
    assert type(refusal.value) is kind
    assert len(server.requests) == 1


async def test_an_error_in_protobuf_is_decoded(tmp_path: Path) -> None:
    error = pb.UnknownStatus(raw=pb.Status(code=500, reason=b"Expired", message=b"too old"))
    body = MAGIC + error.SerializeToString()
    async with serving(tmp_path) as (server, api):
        server.answers = [lambda _: web.Response(body=body, status=500)]
        with pytest.raises(ResourceVersionExpired, match=r"^too old$"):
            async with api.stream("/api/v1/pods", query={}, idle_timeout_s=None, accept=PROTOBUF_EVENTS):
                pass


async def test_retry_after_delays_the_next_attempt(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, api):
        server.answers = [status(429, "TooManyRequests", Retry_After="1"), found(pod_named("one", 5))]
        began = asyncio.get_running_loop().time()
        pod = await api.create("/api/v1/pods", {}, Pod)
        assert asyncio.get_running_loop().time() - began >= 1.0
    assert pod.metadata.name == "one"
    assert server.requests[0].headers["Authorization"] == "Bearer secret"


async def test_an_unreachable_server_raises_unavailable_for_a_write(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, api):
        server.answers = [found({})]
        await server.stop()
        with pytest.raises(ApiUnavailable):
            await api.create("/api/v1/pods", {}, Pod)


def close_connection(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def test_a_closed_connection_leaves_the_outcome_of_a_write_unknown(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, api):
        server.answers = [close_connection]
        with pytest.raises(OutcomeUnknown):
            await api.create("/api/v1/pods", {}, Pod)
        assert len(server.requests) == 1
        with pytest.raises(ApiUnavailable):
            await api.get("/api/v1/pods", Pod)


async def test_a_timeout_leaves_the_outcome_of_a_write_unknown(tmp_path: Path) -> None:
    async with serving(tmp_path, timeout_s=0.05) as (server, api):
        server.answers = [lambda _: web.StreamResponse(headers={"Content-Length": "1"})]
        with pytest.raises(OutcomeUnknown):
            await api.create("/api/v1/pods", {}, Pod)
        with pytest.raises(ApiUnavailable):
            await api.get("/api/v1/pods", Pod)


async def test_an_undecodable_response_raises_an_error(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, api):
        server.answers = [found([])]
        with pytest.raises(KubernetesApiError, match="cannot be decoded"):
            await api.get("/api/v1/pods/one", Pod)


async def test_requests_refuse_compression(tmp_path: Path) -> None:
    def answer(request: web.Request) -> web.StreamResponse:
        response = web.json_response(pod_named("one", 5))
        if request.headers.get("Accept-Encoding") != "identity":
            response.enable_compression(web.ContentCoding.gzip)
        return response

    async with serving(tmp_path) as (server, api):
        server.answers = [answer]
        assert (await api.get("/api/v1/pods/one", Pod)).metadata.name == "one"


@contextlib.asynccontextmanager
async def reflecting(api: ApiClient) -> AsyncGenerator[tuple[Reflector[Pod], asyncio.Queue[tuple[str, str]]]]:
    changes: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def changed(before: Pod | None, after: Pod | None) -> None:
        what = "gone" if after is None else "new" if before is None else "changed"
        pod = after or before
        changes.put_nowait((what, pod.metadata.name if pod else ""))

    reflector = Reflector(api=api, target=WatchTarget(path="/pods"), kind=Pod, on_change=changed)
    task = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(30):
            yield reflector, changes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def watch_for_ever(_: web.Request) -> web.StreamResponse:
    return web.Response(status=503, text="not now")


async def test_a_list_is_read_to_its_last_page(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, api):
        server.answers = [
            found(a_list(7, pod_named("one", 3), more="next")),
            found(a_list(7, pod_named("two", 4))),
            watch_for_ever,
        ]
        async with reflecting(api) as (reflector, changes):
            assert [await changes.get(), await changes.get()] == [("new", "one"), ("new", "two")]
            await reflector.synced.wait()
    assert server.requests[1].query["continue"] == "next"


async def test_an_expired_resource_version_lists_again(tmp_path: Path) -> None:
    gone = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    async with serving(tmp_path) as (server, api):
        server.answers = [
            found(a_list(7, pod_named("one", 3))),
            lines({"type": "MODIFIED", "object": pod_named("one", 8)}, gone),
            found(a_list(20, pod_named("two", 15))),
            watch_for_ever,
        ]
        async with reflecting(api) as (_, changes):
            seen = [await changes.get() for _ in range(4)]
    assert seen == [("new", "one"), ("changed", "one"), ("gone", "one"), ("new", "two")]
    assert "resourceVersion" not in server.requests[2].query


async def test_an_interrupted_watch_continues_after_its_last_event(tmp_path: Path) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}}
    async with serving(tmp_path) as (server, api):
        server.answers = [
            found(a_list(7)),
            lines({"type": "ADDED", "object": pod_named("one", 9)}, bookmark),
            lines({"type": "DELETED", "object": pod_named("one", 13)}),
            watch_for_ever,
        ]
        async with reflecting(api) as (_, changes):
            seen = [await changes.get() for _ in range(3)]
    assert seen == [("new", "one"), ("changed", "one"), ("gone", "one")]
    assert [request.query["resourceVersion"] for request in server.requests[1:3]] == ["7", "12"]


async def test_an_object_written_during_a_list_is_kept(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, api):
        reflected = Reflector(
            api=api, target=WatchTarget(path="/pods"), kind=Pod, on_change=lambda _before, _after: None
        )
        reflected.put(msgspec.convert(pod_named("late", 30), Pod))
        reflected.put(msgspec.convert(pod_named("early", 5), Pod))
        server.answers = [found(a_list(20)), watch_for_ever]
        task = asyncio.create_task(reflected.run())
        async with asyncio.timeout(30):
            await reflected.synced.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert set(reflected.objects) == {"late"}


async def test_requests_are_counted_by_verb_and_status(tmp_path: Path) -> None:
    metrics = Metrics(process=False)
    async with serving(tmp_path, timeout_s=0.2, metrics=PrometheusRequestMetrics(metrics)) as (server, api):
        server.answers = [
            found(pod_named("p", 1)),
            status(429, retry_after="0"),
            found(pod_named("p", 1)),
            status(404, "NotFound"),
            lines({}),
        ]
        await api.get("/p", Pod)
        await api.get("/p", Pod)
        with pytest.raises(ObjectNotFound):
            await api.delete("/p")
        async with api.stream("/p", query={}, idle_timeout_s=1) as opened:
            page = metrics.exposition().decode()
            assert 'muster_kubernetes_requests_in_flight{verb="stream"} 1.0' in page
            assert [chunk async for chunk in opened.chunks]
        await server.stop()
        with pytest.raises(KubernetesApiError):
            await api.create("/p", {}, Pod)

    page = metrics.exposition().decode()
    for line in (
        'muster_kubernetes_requests_total{code="200",verb="get"} 2.0',
        'muster_kubernetes_requests_total{code="429",verb="get"} 1.0',
        'muster_kubernetes_requests_total{code="404",verb="delete"} 1.0',
        'muster_kubernetes_requests_total{code="200",verb="stream"} 1.0',
        'muster_kubernetes_requests_total{code="error",verb="create"} 1.0',
        'muster_kubernetes_requests_total{code="503",verb="patch"} 0.0',
        'muster_kubernetes_request_duration_seconds_count{verb="get"} 3.0',
        'muster_kubernetes_requests_in_flight{verb="stream"} 0.0',
        'muster_kubernetes_requests_in_flight{verb="create"} 0.0',
    ):
        assert line in page
