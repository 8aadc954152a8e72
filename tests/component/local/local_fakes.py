"""Fake services, and a recorder of log lines."""

import asyncio
import sys
from pathlib import Path

from muster_local.log_lines import LogLine

FAKE_SERVICE = Path(__file__).with_name("fake_service.py")


def fake_service(*behaviour: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(FAKE_SERVICE), *behaviour)


class LogRecorder:
    """Records every line, and lets a test wait for one."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self._changed = asyncio.Event()

    def record(self, line: LogLine, _raw: bytes = b"") -> None:
        self.lines.append(line)
        self._changed.set()

    def matching(self, source: str, text: str) -> list[LogLine]:
        return [line for line in self.lines if line.source == source and text in line.message]

    async def wait_for(self, source: str, text: str, *, times: int = 1, seconds: float = 30.0) -> LogLine:
        async with asyncio.timeout(seconds):
            while len(found := self.matching(source, text)) < times:
                self._changed.clear()
                await self._changed.wait()
        return found[times - 1]
