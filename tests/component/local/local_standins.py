"""Stand-ins for services, and ears for what the supervisor says."""

import asyncio
import sys
from pathlib import Path

from muster_local.lines import Line

STANDIN = Path(__file__).with_name("standin.py")


def behaving(*behaviour: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(STANDIN), *behaviour)


class Ears:
    """Hears every line, and lets a test wait for one."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._news = asyncio.Event()

    def hear(self, line: Line, _raw: bytes = b"") -> None:
        self.lines.append(line)
        self._news.set()

    def heard(self, source: str, words: str) -> list[Line]:
        return [line for line in self.lines if line.source == source and words in line.message]

    async def wait_for(self, source: str, words: str, *, times: int = 1, seconds: float = 30.0) -> Line:
        async with asyncio.timeout(seconds):
            while len(found := self.heard(source, words)) < times:
                self._news.clear()
                await self._news.wait()
        return found[times - 1]
