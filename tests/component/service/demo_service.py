"""A service to be run as a process by the tests; MUSTER_DEMO_MODE says how it misbehaves."""

import asyncio
import weakref
from typing import Literal

import grpc
from grpc import aio

from muster_service import app
from muster_service.app import Context, run_app
from muster_service.settings import ServiceSettings


class DemoSettings(ServiceSettings, frozen=True, kw_only=True):
    mode: Literal[
        "plain", "late", "crash", "crash-in-build", "hang-in-build", "hang-in-drain", "return", "cycle"
    ] = "plain"


class Cycle:
    """Garbage that only a collection frees."""

    def __init__(self, ctx: Context) -> None:
        self.own = self
        weakref.finalize(self, ctx.log.info, "collected")


class Slow:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def wait(self, request: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
        self._ctx.log.info("waiting")
        await asyncio.sleep(float(request))
        return b"waited"


def add_slow(slow: Slow, server: aio.Server) -> None:
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Wait": grpc.unary_unary_rpc_method_handler(slow.wait)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Slow", handlers),))


async def build(settings: DemoSettings, ctx: Context) -> None:
    async def worker() -> None:
        if settings.mode == "crash":
            raise RuntimeError("worker broke")
        if settings.mode == "late":
            ctx.log.info("not yet")
            await asyncio.sleep(0.3)
        ctx.set_ready("worker", True)
        if settings.mode == "cycle":
            Cycle(ctx)
        if settings.mode != "return":
            try:
                await asyncio.Event().wait()
            finally:
                ctx.log.info("worker ended")

    async def drain() -> None:
        ctx.log.info("draining")
        if settings.mode == "hang-in-drain":
            await asyncio.Event().wait()

    async def close(name: str) -> None:
        ctx.log.info(f"closing {name}")

    if settings.mode == "crash-in-build":
        raise RuntimeError("build broke")
    if settings.mode == "hang-in-build":
        ctx.log.info("building")
        await asyncio.Event().wait()
    ctx.set_ready("worker", False)
    ctx.add_part("worker", worker)
    ctx.add_grpc(add_slow, Slow(ctx))
    ctx.on_drain(drain)
    ctx.on_close(lambda: close("first opened"))
    ctx.on_close(lambda: close("last opened"))


if __name__ == "__main__":
    app.COLLECT_EVERY_S = 0.1
    run_app(build, settings=DemoSettings, service="demo")
