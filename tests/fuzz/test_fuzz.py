"""Twenty thousand mutated documents get a bounded, printable answer without a stack trace, and the bounds are enforced."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import BYTES, TooSlow, bounded, watch

SEEDS = ("0", "1", "2", "3")
EACH = 5_000
RUN = Path(__file__).with_name("fuzz.py")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_document_gets_an_answer(seed: str) -> None:
    command = [sys.executable, str(RUN), "--count", str(EACH), "--seed", seed]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=540)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["documents"] == summary["accepted"] + summary["rejected"] == EACH
    # A fuzzer whose documents are all rejected by the same check tests nothing behind it.
    assert summary["accepted"] > EACH // 100
    assert len(summary["codes"]) > 15


def test_a_document_above_the_memory_bound_fails() -> None:
    # In a separate process: this one may have freed memory that other tests left.
    ask = f"from fuzz import bounded\nwith bounded():\n    bytearray({BYTES + 1024 * 1024})"
    done = subprocess.run(
        [sys.executable, "-c", ask], cwd=RUN.parent, capture_output=True, text=True, check=False
    )
    assert "MemoryError" in done.stderr


def test_a_document_above_the_time_bound_fails() -> None:
    watch()
    with pytest.raises(TooSlow), bounded():
        while True:
            pass


def test_a_seed_reproduces_its_document() -> None:
    command = [sys.executable, str(RUN), "--replay", "0:157"]
    answers = {subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(answers) == 1
