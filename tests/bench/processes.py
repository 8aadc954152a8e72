"""CPU time and memory of processes, as the kernel counts them."""

import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_LEAST = 19
_ROLLUP = re.compile(r"^(Rss|Pss):\s+(\d+) kB", re.MULTILINE)


class Memory(msgspec.Struct, frozen=True):
    """Resident memory in MiB: `rss` counts shared pages for every process, `pss` divides them."""

    rss: float
    pss: float


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, all threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def memory_of(pids: Iterable[int]) -> Memory:
    """Return the memory of several processes together."""
    totals = {"Rss": 0, "Pss": 0}
    for pid in pids:
        for name, kib in _ROLLUP.findall(Path(f"/proc/{pid}/smaps_rollup").read_text()):
            totals[name] += int(kib)
    return Memory(totals["Rss"] / 1024, totals["Pss"] / 1024)


def with_descendants(pid: int) -> list[int]:
    """Return a process and its descendants."""
    pids = [pid]
    for parent in pids:
        for task in Path(f"/proc/{parent}/task").iterdir():
            pids += map(int, (task / "children").read_text().split())
    return pids


def give_way(pid: int) -> None:
    """Give a process, all of its threads and their children the lowest priority."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(task.name), _LEAST)


class CpuMeter:
    """The CPU use of some processes, and of the rest of the machine, since its creation."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._before = {name: cpu_s(pid) for name, pid in self._pids.items()}
        self._busy_before = _busy_s()
        self._began = time.monotonic()

    def each(self, count: int, *, client_s: float) -> str:
        """Return the cost of one of `count` events for each process, the highest first; `client_s` is the load generator's."""
        used = self._used() | {"client": client_s}
        dearest = sorted(used.items(), key=lambda item: -item[1])
        return ", ".join(f"{name} {1000 * seconds / count:.2f}" for name, seconds in dearest)

    def strangers(self, *, client_s: float) -> float:
        """Return how many cores other programs kept busy."""
        others = _busy_s() - self._busy_before - sum(self._used().values()) - client_s
        return max(others, 0.0) / (time.monotonic() - self._began)

    def _used(self) -> dict[str, float]:
        return {name: cpu_s(pid) - self._before[name] for name, pid in self._pids.items()}


def _busy_s() -> float:
    """Return the busy seconds of all cores since boot."""
    user, nice, system, _, _, irq, soft, *_ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + soft) / _TICKS_PER_S
