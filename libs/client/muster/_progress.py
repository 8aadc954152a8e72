"""Progress reports of training programs.

Written for the inner loop of training: no connection, no slow imports, and nothing that could end the program.
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
    """Writes the progress file if the job has one, else a log line now and then."""

    def __init__(self) -> None:
        self._next_line_at = 0.0

    def write(self, report: str) -> bool:
        try:
            if file := os.environ.get(_VARIABLE):
                self._replace(Path(file), report)
                return True
            if not os.environ.get(_JOB_VARIABLE):
                return False
            if time.monotonic() >= self._next_line_at:
                self._next_line_at = time.monotonic() + _BETWEEN_LINES_S
                # One write that bypasses redirected streams, so that lines do not mix.
                os.write(_STDOUT, f"{_LINE}{report}\n".encode())
        except OSError:
            return False
        return True

    def _replace(self, path: Path, report: str) -> None:
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(report, encoding="utf-8")
        draft.replace(path)


_reporter = _Reporter()


def report(step: int, **metrics: object) -> bool:
    """Report that training has reached ``step``, a count that all workers share and that only rises, with measured
    values.

    Muster learns the speed-up model from the steps at different sizes. One replica suffices, as often as it likes: the
    last report counts. In a pod the report is a log line every ten seconds, else a small file. Returns whether it was
    written; outside Muster it does nothing.
    """
    # As text: a loss of NaN is worth reporting and has no JSON form.
    measured = {name: str(value) for name, value in metrics.items()}
    return _reporter.write(json.dumps({"step": int(step), "at": time.time(), "metrics": measured}))
