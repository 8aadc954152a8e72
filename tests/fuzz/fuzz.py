"""`make fuzz`: read many mutated documents, each within a second of CPU and 64 MiB.

    fuzz.py [--count N] [--seed TEXT] [--replay SEED]

Prints one JSON object: how many were accepted and rejected, by code, and the slowest. A document without a proper answer
is written to a file named after its seed, and the exit code is 1; `--replay` reads that one alone.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from judging import judge
from mutation import corpus, document

SECONDS = 1
BYTES = 64 * 1024 * 1024
_PAGE = resource.getpagesize()
_SHOWN = 10


class TooSlow(AssertionError):
    """An answer took too much CPU time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Read and check; returns the exit code."""
    options = _parser().parse_args(arguments)
    texts = corpus()
    if options.replay:
        sys.stdout.write(f"{judge(document(options.replay, texts))}\n")
        return 0
    watch()
    watch()
    codes: Counter[str] = Counter()
    accepted, slowest, failed = 0, (0.0, ""), 0
    for number in range(options.count):
        seed = f"{options.seed}:{number}"
        made = document(seed, texts)
        started = time.process_time()
        try:
            with bounded():
                rejected = judge(made)
        except Exception:
            failed += 1
            if failed <= _SHOWN:
                _report(seed, made)
            continue
        slowest = max(slowest, (time.process_time() - started, seed))
        accepted += not rejected
        codes.update(set(rejected))
    _summary(options.count, accepted, failed, slowest, codes)
    return 1 if failed or not accepted or not codes else 0


def watch() -> None:
    """Watch the CPU time of this process."""
    signal.signal(signal.SIGPROF, _too_slow)


@contextmanager
def bounded() -> Generator[None]:
    """Bound memory and CPU time: more memory fails, more CPU time raises."""
    gc.collect(0)
    held = int(Path("/proc/self/statm").read_text().split()[5]) * _PAGE
    unlimited = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (held + BYTES, unlimited[1]))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_DATA, unlimited)


def _too_slow(_signal: int, _frame: FrameType | None) -> None:
    raise TooSlow(f"more than {SECONDS} s of CPU")


def _report(seed: str, made: str | bytes) -> None:
    data = made if isinstance(made, bytes) else made.encode(errors="surrogateescape")
    with tempfile.NamedTemporaryFile(prefix="muster-fuzz-", suffix=".yaml", delete=False) as file:
        file.write(data)
    sys.stderr.write(f"{seed}: {file.name}\n{traceback.format_exc(limit=-4)}\n")


def _summary(count: int, accepted: int, failed: int, slowest: tuple[float, str], codes: Counter[str]) -> None:
    summary = {
        "documents": count,
        "accepted": accepted,
        "rejected": count - accepted - failed,
        "failed": failed,
        "slowest_cpu_ms": round(slowest[0] * 1000),
        "slowest": slowest[1],
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "codes": dict(codes.most_common()),
    }
    sys.stdout.write(json.dumps(summary) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Read mutated documents and check the answers.")
    parser.add_argument("--count", type=int, default=20_000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", default="0", help="the seed (default: %(default)s)")
    parser.add_argument("--replay", default="", metavar="SEED", help="only this document, such as 0:1234")
    return parser


if __name__ == "__main__":
    sys.exit(main())
