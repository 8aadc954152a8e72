"""Values of a job that came as data, judged one by one: what the documents' kinds refuse, these refuse, with paths into the typed job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster_core.models.problem_codes import Code
from muster_formats.names import LABEL_KEY, LABEL_VALUE, Rule
from muster_formats.problems import Problems, Spot, shown


class Values:
    """Says what is wrong with single values."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems

    def name(self, path: str, name: str, rule: Rule) -> None:
        """A name that must be given, by its rule."""
        if not name:
            self.refuse(
                Code.REQUIRED, path, f"{path.rsplit('.', 1)[-1]} is not given", found="", allowed=rule.words
            )
        elif not rule.allows(name):
            self.refuse(
                Code.BAD_NAME, path, rule.message(name), found=name, allowed=rule.words, fix=rule.remedy(name)
            )

    def keys(self, path: str, mapping: Mapping[str, str], rule: Rule) -> None:
        """The keys of a mapping, by their rule."""
        for key in mapping:
            self.name(f"{path}.{key}", key, rule)

    def labels(self, path: str, labels: Mapping[str, str]) -> None:
        """Labels: keys and values."""
        self.keys(path, labels, LABEL_KEY)
        for key, value in labels.items():
            if not LABEL_VALUE.allows(value):
                self.refuse(
                    Code.BAD_NAME,
                    f"{path}.{key}",
                    LABEL_VALUE.message(value),
                    found=value,
                    allowed=LABEL_VALUE.words,
                )

    def range(self, path: str, value: int, low: int, high: int) -> None:
        """A number within bounds."""
        if not low <= value <= high:
            bound = f"the least is {low}" if value < low else f"the most is {high}"
            words = f"{path.rsplit('.', 1)[-1]} is {shown(value)}; {bound}"
            self.refuse(Code.OUT_OF_RANGE, path, words, found=value, allowed=f"{low} to {high}")

    def choice(self, path: str, value: str, allowed: tuple[str, ...]) -> None:
        """One of some texts, of which the empty one is not named."""
        if value not in allowed:
            names = ", ".join(name for name in allowed if name)
            self.refuse(
                Code.NOT_ALLOWED,
                path,
                f"{path.rsplit('.', 1)[-1]} is one of {names}",
                found=value,
                allowed=names,
            )

    def no_nul(self, path: str, texts: Iterable[str]) -> None:
        """Texts that a program can be given."""
        if any("\0" in text for text in texts):
            words = "the character U+0000 can be in no name, argument or variable"
            self.refuse(Code.CONTROL_CHARACTER, path, words, found="U+0000", fix="remove it")

    def refuse(
        self, code: Code, path: str, message: str, *, found: object, allowed: str = "", fix: str = ""
    ) -> None:
        """Say that the value at ``path`` is none."""
        told = shown(found) if found != "" else ""
        self.problems.add(code, Spot(path=path), message, found=told, allowed=allowed, fix=fix)
