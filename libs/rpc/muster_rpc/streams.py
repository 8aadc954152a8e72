"""How a stream says that it has begun before there is anything to tell.

Whoever reads a quiet stream cannot tell one that never began from one that began an hour ago and has just broken. The first is to be given
up after a while, the second to be taken up again with fresh patience.
"""

from __future__ import annotations

from collections.abc import Iterable

OPEN = (("muster-stream", "open"),)
"""The initial metadata of a stream that has begun."""


def has_begun(metadata: Iterable[tuple[str, str | bytes]] | None) -> bool:
    """Whether these initial metadata are those of a stream that has begun; of one that never did there are none."""
    return any(entry in OPEN for entry in metadata or ())
