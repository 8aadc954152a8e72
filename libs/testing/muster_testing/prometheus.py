"""A Prometheus with the rules of ``deploy/prometheus``, whose times are divided, so that alerts of minutes fire after seconds."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import yaml

from muster_testing.cluster.program import ChildProgram, free_port

RULES = Path(__file__).resolve().parents[3] / "deploy/prometheus/rules"
FASTER = 30
"""By what the times of rules are divided."""

_UNITS = {"s": 1, "m": 60, "h": 3600}
_READY_S = 60.0
_POLL_S = 0.5
_WAITING_LONG = "4 * 3600"


class Alert(msgspec.Struct, frozen=True):
    """A pending or firing alert."""

    labels: dict[str, str]
    state: str


class _Alerts(msgspec.Struct, frozen=True):
    alerts: list[Alert]


class _Answer(msgspec.Struct, frozen=True):
    data: _Alerts


def alert_names() -> list[str]:
    """Return the names of all alerts."""
    return re.findall(r"- alert: (\w+)", (RULES / "alerts.yml").read_text())


class Prometheus:
    """Reads the metrics of ``targets``, lists of addresses by job, every second; an async context manager."""

    def __init__(self, folder: Path, targets: Mapping[str, list[str]]) -> None:
        program = shutil.which("prometheus")
        if program is None:
            raise FileNotFoundError("prometheus is not installed: apt-get install prometheus")
        self._folder = folder
        self._targets = targets
        address = f"127.0.0.1:{free_port()}"
        self._url = f"http://{address}"
        arguments = (
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address={address}",
            "--log.level=warn",
        )
        self._program = ChildProgram("prometheus", [program, *arguments], folder=folder)

    async def __aenter__(self) -> Self:
        self._folder.mkdir()
        for name in ("recording.yml", "alerts.yml"):
            (self._folder / name).write_text(_hasten((RULES / name).read_text()))
        every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        jobs = [
            {"job_name": job, "static_configs": [{"targets": addresses}]}
            for job, addresses in self._targets.items()
        ]
        config = {"global": every, "rule_files": ["recording.yml", "alerts.yml"], "scrape_configs": jobs}
        (self._folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._program.start()
        await self._program.until(self._is_ready, timeout_s=_READY_S)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program.end()

    async def firing(self) -> dict[str, list[dict[str, str]]]:
        """Return the labels of the firing alerts by name."""
        text = await asyncio.to_thread(self._get, "/api/v1/alerts")
        found: dict[str, list[dict[str, str]]] = defaultdict(list)
        for alert in msgspec.json.decode(text, type=_Answer).data.alerts:
            if alert.state == "firing":
                found[alert.labels["alertname"]].append(alert.labels)
        return dict(found)

    async def fires(self, name: str, *, within_s: float = 120.0, **labels: str) -> None:
        """Wait until the alert fires with these labels."""
        seen: dict[str, list[dict[str, str]]] = {}
        try:
            async with asyncio.timeout(within_s):
                while True:
                    seen = await self.firing()
                    if any(labels.items() <= each.items() for each in seen.get(name, ())):
                        return
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise AssertionError(f"{name} {labels} does not fire: {json.dumps(seen)}") from None

    async def is_quiet(self, *, within_s: float = 120.0) -> None:
        """Wait until no alert fires."""
        seen: dict[str, list[dict[str, str]]] = {}
        try:
            async with asyncio.timeout(within_s):
                while True:
                    seen = await self.firing()
                    if not seen:
                        return
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise AssertionError(f"alerts still fire: {json.dumps(seen)}") from None

    async def _is_ready(self) -> bool:
        try:
            await asyncio.to_thread(self._get, "/-/ready")
        except OSError:
            return False
        return True

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(self._url + path, timeout=10) as answer:  # noqa: S310 - always http
            return answer.read()


def _hasten(rules: str) -> str:
    """Divide every time of the rules; what a job may wait is 4 hours, and 4 seconds here."""

    def divided(found: re.Match[str]) -> str:
        seconds = int(found["number"]) * _UNITS[found["unit"]]
        return f"{found['before']}{max(1, round(seconds / FASTER))}s"

    text = re.sub(r"(?P<before>\bfor: |\[)(?P<number>\d+)(?P<unit>[smh])\b", divided, rules)
    return text.replace(_WAITING_LONG, "4")
