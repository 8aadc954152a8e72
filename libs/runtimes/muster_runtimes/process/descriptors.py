"""A pipe, or a terminal's own side, read and written without holding anybody up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress


class Descriptor:
    """Owns ``number``, which ``aclose`` closes. One reader and one writer at a time."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self._number: int | None = number

    @property
    def number(self) -> int:
        """The descriptor. Raises ``ValueError`` when it is closed."""
        if self._number is None:
            raise ValueError("closed")
        return self._number

    async def read(self, most: int) -> bytes:
        """At most so many bytes, as soon as there are any; empty at the end."""
        while self._number is not None:
            try:
                return os.read(self._number, most)
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await self._ready(loop.add_reader, loop.remove_reader)
            except OSError:
                # A terminal that nobody has open any more answers so.
                return b""
        return b""

    async def write(self, data: bytes) -> None:
        """Write all of it; what nobody reads any more is dropped."""
        rest = memoryview(data)
        while rest and self._number is not None:
            try:
                rest = rest[os.write(self._number, rest) :]
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await self._ready(loop.add_writer, loop.remove_writer)
            except OSError:
                return

    def close(self) -> None:
        """Close it."""
        number, self._number = self._number, None
        if number is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(number)
            loop.remove_writer(number)
            with suppress(OSError):
                os.close(number)

    async def _ready(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        number = self.number
        ready = asyncio.get_running_loop().create_future()

        def tell() -> None:
            if not ready.done():
                ready.set_result(None)

        add(number, tell)
        try:
            await ready
        finally:
            if self._number == number:
                remove(number)
