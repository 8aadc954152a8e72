"""Why jobs wait, and what would let them start.

``diagnosis`` finds why scheduling classes do not fit and reports it to their jobs, ``explanation`` answers for one job,
``what_if`` tries changes on the pool inside a transaction, ``remedies`` describes the changes that help.
"""

from muster_core.scheduling.explain.diagnosis import LOOK_US_PER_LINE, Telling, Tried, look_at
from muster_core.scheduling.explain.explanation import Explaining, Explanation

__all__ = ["LOOK_US_PER_LINE", "Explaining", "Explanation", "Telling", "Tried", "look_at"]
