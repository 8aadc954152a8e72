"""The simulation of the whole system is the same run for the same seed.

``python tests/simulation/simulated_run.py SEED -v`` runs a seed. Its findings are not asserted here yet: the memory broker is not
compared with the real one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_PROGRAM = Path(__file__).with_name("simulated_run.py")


def simulate(first: int, count: int, *options: str, hash_seed: str = "0") -> list[dict[str, Any]]:
    """Return the outcomes of some seeds."""
    command = [sys.executable, str(_PROGRAM), str(first), "--count", str(count), "--json", *options]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    ended = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert not ended.stderr, ended.stderr.decode()
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_seed_is_the_same_run_in_another_process_and_after_other_seeds():
    [alone] = simulate(3, 1, hash_seed="7")
    *_, after_others = simulate(1, 3)

    assert alone["trace"] == after_others["trace"]
    assert alone["callbacks"] == after_others["callbacks"]
