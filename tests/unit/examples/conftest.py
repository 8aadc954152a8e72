"""Puts the repository's root on the path, so that the examples import as a user's editor sees them."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
