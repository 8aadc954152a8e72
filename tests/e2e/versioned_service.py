"""Run a service from the source tree that a file names: ``versioned_service.py FOLDER MODULE``.

``FOLDER`` has a file for each instance, by its name. The test writes another tree into it, and ends the instance, which its
supervisor starts again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Become the service."""
    folder, module = sys.argv[1:]
    tree = Path(Path(folder, os.environ["MUSTER_INSTANCE"]).read_text())
    packages = sorted(path.parent for path in tree.glob("*/*/pyproject.toml"))
    # Before the packages that are installed.
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, packages))
    os.execv(sys.executable, [sys.executable, "-P", "-m", module])


if __name__ == "__main__":
    main()
