"""How a rule says that it is broken: once, where it is broken, and not where a value that decides it was already refused."""

from __future__ import annotations

from muster_core.models import Severity
from muster_core.models.problem_codes import Code
from muster_formats.capabilities import Limit
from muster_formats.places import Locator, Place
from muster_formats.problems import Problems, shown


class Judge:
    """Tells of broken rules in the words of the document, or of the typed job."""

    def __init__(self, locator: Locator, problems: Problems) -> None:
        self._locator = locator
        self._problems = problems

    def refuse(
        self,
        code: Code,
        place: Place,
        message: str,
        *others: Place,
        found: str = "",
        allowed: str = "",
        fix: str = "",
    ) -> None:
        """Say that a rule is broken at ``place``, unless it or one of the ``others`` that decide it was refused."""
        spots = [self._locator.spot(one) for one in (place, *others)]
        if not any(self._problems.at(spot.path) for spot in spots):
            self._problems.add(code, spots[0], message, found=found, allowed=allowed, fix=fix)

    def warn(self, place: Place, message: str, *, fix: str = "") -> None:
        """Say that what stands at ``place`` has no effect."""
        self._problems.warn(Code.NOT_ACTED_UPON, self._locator.spot(place), message, fix=fix)

    def limit(self, limit: Limit) -> None:
        """Say that a limit is met, unless the value that meets it was refused."""
        place = Place(limit.field, limit.role)
        spot, word = self._locator.spot(place), self._locator.word(place)
        if self._problems.at(spot.path):
            return
        warned = Code.KUBERNETES_ONLY if limit.kubernetes_only else Code.NOT_ACTED_UPON
        self._problems.add(
            Code.NOT_TAKEN if limit.severity is Severity.ERROR else warned,
            spot,
            limit.message.replace("{word}", word),
            severity=limit.severity,
            found=shown(limit.found) if limit.found else "",
            fix=limit.fix.replace("{word}", word),
        )

    def word(self, field: str, role: str = "") -> str:
        """What a field is called."""
        return self._locator.word(Place(field, role))
