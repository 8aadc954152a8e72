"""Adds the repository's root to the path, so that the examples import as in a user's editor."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
