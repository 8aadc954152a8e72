import os
import resource
import threading
from pathlib import Path

import pytest

from muster_service.process_resources import descriptor_shortage, thread_shortage


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_fewer_free_descriptors_than_needed_are_a_shortage():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    before = open_descriptors()
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(highest + 1 - before)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 6, hard))
    try:
        short = descriptor_shortage(8)
        enough = descriptor_shortage(1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)

    assert short is not None
    assert f"of {highest + 6} file descriptors" in short
    assert enough is None
    assert descriptor_shortage() is None
    assert open_descriptors() == before


def test_a_thread_that_cannot_be_started_is_a_shortage(monkeypatch: pytest.MonkeyPatch):
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    assert thread_shortage() is None
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert "no thread can be started" in str(thread_shortage())
