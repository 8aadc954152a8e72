"""A control plane of the test's own, behind a front that fails as it is told."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
