"""Generate the synchronous client from the asyncio client.

Usage: ``python libs/client/generate.py [--check]``; with ``--check`` nothing is written, and the exit code is 1 when the
committed file differs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent / "muster"
TARGET = PACKAGE / "_sync_client.py"
HEADER = '''"""The synchronous client, generated from ``aio.py`` by ``libs/client/generate.py``; do not edit."""
'''

REPLACEMENTS = (
    (r"__a(enter|exit|iter)__", r"__\1__"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bin an ``with`` block", "in a ``with`` block"),
    (r"One event loop may use it", "Threads may share it"),
    (r"One task may", "One thread may"),
    (r"\bAsync(Client|Call|Connection|Execution|Iterator|Responses)\b", r"\1"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"^import asyncio$", "import time"),
    (r"^from grpc import aio\n", ""),
    (r"(?<!`)\baio\.(?!py)", "grpc."),
)
"""Regular expressions and what replaces them, in order."""


def synchronous(source: str) -> str:
    """Return the source of the synchronous client, formatted."""
    source = HEADER + source.partition('"""\n')[2]
    for pattern, replacement in REPLACEMENTS:
        source = re.sub(pattern, replacement, source, flags=re.MULTILINE | re.DOTALL)
    for command in (["check", "--quiet", "--fix", "--unsafe-fixes"], ["format", "--quiet"]):
        ruff = [Path(sys.executable).with_name("ruff"), *command, "--stdin-filename", TARGET, "-"]
        source = subprocess.run(ruff, input=source, capture_output=True, text=True, check=True).stdout
    return source


def main() -> int:
    """Write or check the file; returns the exit code."""
    generated = synchronous((PACKAGE / "aio.py").read_text())
    if sys.argv[1:] == ["--check"]:
        if TARGET.read_text() == generated:
            return 0
        sys.stderr.write(f"{TARGET.name} is stale: run python libs/client/generate.py\n")
        return 1
    TARGET.write_text(generated)
    return 0


if __name__ == "__main__":
    sys.exit(main())
