"""Which tests share a worker when several run side by side: those that share what is dear to start."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer

# Explaining a failure means tracing every line of every run, which before Python 3.12 takes most of a property's time.
settings.register_profile("muster", phases=[phase for phase in Phase if phase is not Phase.explain])
settings.load_profile("muster")

# A shell that starts the tests in the background has SIGINT ignored, and whoever they start would inherit that: no Ctrl-C would be heard.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TOGETHER = (
    "tests/cluster/",
    "tests/frameworks/",
    "tests/e2e/test_answers",
    "tests/property/scheduling/queues/test_determinism",
)
"""Beginnings of the names of tests that one worker runs, one after the other; each of the others may run anywhere."""


class Together(LoadScopeScheduling):
    """The tests of each beginning go to one worker.

    Pytest-xdist's own groups are told by marks that it writes into the names of tests, which this pytest does not let it write.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next((beginning for beginning in TOGETHER if nodeid.startswith(beginning)), nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together:
    """See pytest-xdist."""
    return Together(config, log)
