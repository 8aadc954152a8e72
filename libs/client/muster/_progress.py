"""A training program says how far it is.

Written for the inner loop of training: no connection, no import of anything that takes time, and nothing that could end the program.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

_VARIABLE = "MUSTER_PROGRESS_FILE"


def report(step: int, **metrics: object) -> bool:
    """Say that training has come to ``step``, a count that all workers share and that only rises, and what was measured.

    From the steps at different sizes Muster learns how much faster the job is with more workers. One replica is enough to call it, as
    often as it likes: the last word counts. Whether it could be said; outside of Muster it cannot, and nothing happens.
    """
    file = os.environ.get(_VARIABLE)
    if not file:
        return False
    path = Path(file)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    # As text: a loss that is not a number is worth telling, and has no JSON.
    measured = {name: str(value) for name, value in metrics.items()}
    said = {"step": int(step), "at": time.time(), "metrics": measured}
    try:
        draft.write_text(json.dumps(said), encoding="utf-8")
        draft.replace(path)
    except OSError:
        return False
    return True
