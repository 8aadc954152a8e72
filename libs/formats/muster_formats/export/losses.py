"""What is lost when a job is written in a form that cannot say all of it: told, and refused where the job would mean something else."""

from __future__ import annotations

import copy

from muster_core.models import Problem
from muster_core.models.problem_codes import Code
from muster_formats.problems import Problems, Spot


class Losses:
    """Collects what is lost of one job; paths are those of the native form. ``form`` is what the target is called (``a TFJob``)."""

    def __init__(self, form: str, job_name: str = "") -> None:
        self._form = form
        self._of = f"{job_name}: " if job_name else ""
        self._under = ""
        self._problems = Problems()

    def below(self, path: str) -> Losses:
        """The same losses, told with paths below ``path``."""
        inner = copy.copy(self)
        inner._under = f"{self._under}{path}."
        return inner

    def lose(self, path: str, why: str, *, fix: str = "") -> None:
        """A detail that is not written."""
        path = f"{self._under}{path}"
        self._problems.warn(Code.LOST, Spot(path=path), f"{self._of}{path} is lost: {why}", fix=fix)

    def refuse(self, path: str, why: str, *, fix: str = "") -> None:
        """Something that the job would not mean the same without."""
        path = f"{self._under}{path}"
        words = f"{self._of}{path} cannot be written as {self._form}: {why}"
        self._problems.add(Code.NOT_CONVERTIBLE, Spot(path=path), words, fix=fix)

    @property
    def refused(self) -> bool:
        """Whether the job cannot be written."""
        return self._problems.refused

    def all(self) -> tuple[Problem, ...]:
        """What was lost, what cannot be written first."""
        return self._problems.ordered()
