"""Puts the sink together."""

from concurrent.futures import ThreadPoolExecutor

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc

from muster_local.sink.query import QueryApi
from muster_local.sink.receiver import Receiver
from muster_local.sink.settings import SinkSettings
from muster_local.sink.store import TraceStore
from muster_service.app import Context
from muster_service.http_server import HttpServer


async def build(settings: SinkSettings, ctx: Context) -> None:
    """Open the store and serve it on both sides."""
    store = TraceStore(folder=settings.folder, max_bytes=settings.max_mib * 1024 * 1024)
    # SQLite blocks: one thread has it, and the event loop stays free to take and to answer.
    executor = ThreadPoolExecutor(1, thread_name_prefix="store")
    pages = HttpServer(
        host=settings.http_address.host,
        port=settings.http_address.port,
        handler=QueryApi(store=store, executor=executor),
    )

    async def close() -> None:
        executor.shutdown(wait=True)
        store.close()

    ctx.on_close(close)
    ctx.on_close(pages.stop)
    await pages.start()
    ctx.addresses["http"] = f"{settings.http_address.rpartition(':')[0]}:{pages.port}"
    receiver = Receiver(store=store, executor=executor)
    ctx.add_grpc(trace_service_pb2_grpc.add_TraceServiceServicer_to_server, receiver)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]  # generated without types
