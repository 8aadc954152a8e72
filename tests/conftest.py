"""Options of every test run: Hypothesis profile, distribution over workers, and the time that each folder took."""

from __future__ import annotations

import signal
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer

# The explain phase traces every line, which takes most of a property's time before Python 3.12.
settings.register_profile("muster", phases=[phase for phase in Phase if phase is not Phase.explain])
settings.load_profile("muster")

# A shell that runs the tests in the background ignores SIGINT, and child processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SAME_WORKER = (
    "tests/cluster/",
    "tests/containers/",
    "tests/frameworks/",
    "tests/e2e/test_placement_scenarios",
    "tests/e2e/test_elastic_scenarios",
    "tests/property/scheduling/state/test_determinism",
)
"""Prefixes of test ids that run on one worker, one after the other, because they share an expensive fixture."""

_FOLDER_DEPTH = 2


class PrefixScheduling(LoadScopeScheduling):
    """Send the tests of each prefix in ``SAME_WORKER`` to one worker; any worker runs the others."""

    def _split_scope(self, nodeid: str) -> str:
        return next((prefix for prefix in SAME_WORKER if nodeid.startswith(prefix)), nodeid)


class FolderTimes:
    """Sums the duration of tests by folder."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count set-up, call and tear-down of each test."""
        folder = "/".join(report.nodeid.split("/")[:_FOLDER_DEPTH])
        self._seconds[folder] += report.duration
        self._tests[folder] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the folders, the slowest first."""
        terminalreporter.section("time by folder (all workers)")
        for folder, seconds in sorted(self._seconds.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"{seconds:8.1f} s  {self._tests[folder]:5} tests  {folder}")


def pytest_configure(config: pytest.Config) -> None:
    """Report times from the process that collects the results of all workers."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FolderTimes(), "folder-times")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> PrefixScheduling:
    """Distribute tests with ``PrefixScheduling``."""
    return PrefixScheduling(config, log)
