"""A training program says how far it is.

Written for the inner loop of training: no connection, no import of anything that takes time, and nothing that could end the program.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

_VARIABLE = "MUSTER_PROGRESS_FILE"
_JOB_VARIABLE = "MUSTER_JOB_ID"
_LINE = "muster-progress: "
_BETWEEN_LINES_S = 10.0
_STDOUT = 1


class _Reporter:
    """Writes the file, where the job has one, and else now and then a line of the log."""

    def __init__(self) -> None:
        self._next_line_at = 0.0

    def tell(self, said: str) -> bool:
        try:
            if file := os.environ.get(_VARIABLE):
                self._replace(Path(file), said)
                return True
            if not os.environ.get(_JOB_VARIABLE):
                return False
            if time.monotonic() >= self._next_line_at:
                self._next_line_at = time.monotonic() + _BETWEEN_LINES_S
                # One write, past what the program has done to its own streams: nothing comes in between.
                os.write(_STDOUT, f"{_LINE}{said}\n".encode())
        except OSError:
            return False
        return True

    def _replace(self, path: Path, said: str) -> None:
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(said, encoding="utf-8")
        draft.replace(path)


_reporter = _Reporter()


def report(step: int, **metrics: object) -> bool:
    """Say that training has come to ``step``, a count that all workers share and that only rises, and what was measured.

    From the steps at different sizes Muster learns how much faster the job is with more workers. One replica is enough to call it, as
    often as it likes: the last word counts. In a pod it is a line of the log every ten seconds, elsewhere a small file. Whether it could
    be said; outside of Muster it cannot, and nothing happens.
    """
    # As text: a loss that is not a number is worth telling, and has no JSON.
    measured = {name: str(value) for name, value in metrics.items()}
    return _reporter.tell(json.dumps({"step": int(step), "at": time.time(), "metrics": measured}))
