"""Write ``docs/events.md`` and ``docs/asyncapi.json`` from the catalogue.

Usage: ``python libs/events/generate.py [--check]``; with ``--check`` nothing is written and the exit code is 1 when a file is stale.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from muster_events.reference import asyncapi, markdown

DOCS = Path(__file__).resolve().parents[2] / "docs"


def main() -> int:
    """Write or check the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = False
    for name, content in {"events.md": markdown().encode(), "asyncapi.json": asyncapi()}.items():
        path = DOCS / name
        if path.exists() and path.read_bytes() == content:
            continue
        if check:
            sys.stderr.write(f"docs/{name} differs from the catalogue: run `make docs`\n")
            stale = True
        else:
            path.write_bytes(content)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
