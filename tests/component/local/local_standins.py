"""Stand-ins for services, and ears for what the supervisor says."""

import asyncio
import sys
from pathlib import Path

from muster_local.log_lines import LogLine

STANDIN = Path(__file__).with_name("standin.py")


def behaving(*behaviour: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(STANDIN), *behaviour)


class Ears:
    """Hears every line, and lets a test wait for one."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self._news = asyncio.Event()

    def hear(self, line: LogLine, _raw: bytes = b"") -> None:
        self.lines.append(line)
        self._news.set()

    def heard(self, source: str, last_output: str) -> list[LogLine]:
        return [line for line in self.lines if line.source == source and last_output in line.message]

    async def wait_for(
        self, source: str, last_output: str, *, times: int = 1, seconds: float = 30.0
    ) -> LogLine:
        async with asyncio.timeout(seconds):
            while len(found := self.heard(source, last_output)) < times:
                self._news.clear()
                await self._news.wait()
        return found[times - 1]
