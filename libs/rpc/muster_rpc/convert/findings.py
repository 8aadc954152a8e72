"""Collects what a spec cannot mean while the rest of it is still being read."""

from __future__ import annotations

from google.protobuf import duration_pb2

from muster_core.models import Problem
from muster_rpc.convert.enums import CoreT, EnumPair, ProtoT
from muster_rpc.convert.instants import seconds_from_proto


class Findings:
    """The problems of one spec, each with the path of its field in the proto's own words (``roles[0].restart_policy``)."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    @property
    def problems(self) -> tuple[Problem, ...]:
        """In the order of the fields."""
        return tuple(self._problems)

    def report(self, code: str, path: str, message: str, *, found: str, allowed: str) -> None:
        """Note one value that is none; ``code`` is one of the table that the formats share."""
        self._problems.append(Problem(code=code, path=path, message=message, found=found, allowed=allowed))

    def member(self, pair: EnumPair[CoreT, ProtoT], number: int, path: str) -> CoreT | None:
        """The member that ``number`` stands for; None when it is not said, or unknown, which is reported."""
        member = pair.from_proto(number)
        if member is None and number != 0:
            names = ", ".join(known.name for known in pair.members)
            self.report(
                "NotAllowed", path, f"{number} is no value of this enum", found=str(number), allowed=names
            )
        return member

    def seconds(self, duration: duration_pb2.Duration, path: str) -> int:
        """The duration in seconds, fractions rounded up; a negative one is reported and counts as 0."""
        if duration.seconds < 0 or duration.nanos < 0:
            found = f"{duration.seconds + duration.nanos / 1e9:g} s"
            self.report(
                "BadDuration", path, "a duration cannot be negative", found=found, allowed="0 s or more"
            )
            return 0
        return seconds_from_proto(duration)
