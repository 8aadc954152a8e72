"""A command line of Arena -> its sub-command, its flags by their table, and the words that are the replicas' own command.

Flags are told apart from the command as Arena does: a flag that Arena knows is Arena's wherever it stands; the other words are the
command, in their order. A flag that Arena does not know ends up in the command only where the command has begun without quotes, and a
warning says so; anywhere else it is a mistake.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from muster_core.models.problem_codes import Code
from muster_formats.arena.flags import GlobalFlags
from muster_formats.arena.kinds import Flag
from muster_formats.cursor import Cursor, nearest, warn_idle
from muster_formats.names import QUEUE
from muster_formats.problems import Problems, Spot, shown
from muster_formats.shell_words import Word
from muster_formats.table import Table

T = TypeVar("T")

_TRUTHS = ("true", "false")
_QUEUE = "--queue"


@dataclass
class Line:
    """The flags that are given, by their own names, and the command. ``spot`` is where the line begins.

    ``kubernetes`` is where those stand that have an effect on Kubernetes only.
    """

    spot: Spot
    problems: Problems
    what: str
    flags: dict[str, list[Cursor]] = field(default_factory=dict[str, list[Cursor]])
    command: list[Word] = field(default_factory=list[Word])
    kubernetes: list[Spot] = field(default_factory=list[Spot])

    def at(self, flag: Flag[T]) -> Cursor | None:
        """Where a flag is given, the last time."""
        return self.at_key(flag.key)

    def at_key(self, key: str) -> Cursor | None:
        """The same by the flag's own name."""
        found = self.flags.get(key)
        return found[-1] if found else None

    def get(self, flag: Flag[T]) -> T | None:
        """The value of a flag; ``None`` if it is not given or was refused."""
        cursor = self.at(flag)
        return flag.kind.read(cursor) if cursor else None

    def all(self, flag: Flag[T]) -> list[T]:
        """Every value of a flag that may be given again; what was refused is left out."""
        read = [flag.kind.read(cursor) for cursor in self.flags.get(flag.key, [])]
        return [value for value in read if value is not None]

    def map(self, flag: Flag[tuple[str, T]]) -> dict[str, T]:
        """Every value of a flag of pairs; the last one of a name counts."""
        return dict(self.all(flag))

    def spot_of(self, flag: Flag[T]) -> Spot:
        """Where a flag is given, or the beginning of the line with the flag's name."""
        cursor = self.at(flag)
        return cursor.spot if cursor else self.missing_spot(flag.key)

    def tell_of_kubernetes(self, *refused: Flag[str]) -> None:
        """Warn of what has an effect on Kubernetes only, unless it is among the ``refused`` or is wrong."""
        names = {name for flag in refused for name in flag.names}
        for spot in self.kubernetes:
            if spot.path not in names and not self.problems.at(spot.path):
                words = f"on Kubernetes only: {spot.path}; replicas that run as processes do without"
                self.problems.warn(Code.KUBERNETES_ONLY, spot, words, found=spot.path)

    def missing_spot(self, name: str) -> Spot:
        """Where to say that something is not given."""
        return Spot(path=name, line=self.spot.line, column=self.spot.column)


def flags_of(table: type[Table]) -> dict[str, Flag[object]]:
    """The flags of a table by each of their names."""
    flags = cast("Iterable[Flag[object]]", table.fields().values())
    return {name: flag for flag in flags for name in flag.names}


def read_flags(line: Line, words: list[Word], table: type[Table]) -> None:
    """Read words into ``line`` by a table. What is unknown, without effect or not taken is told."""
    _Reader(line, words, table).read()


def skip_globals(words: list[Word]) -> tuple[list[Word], list[Word]]:
    """The words before the first that is no flag of the ``arena`` program, and the others."""
    flags = flags_of(GlobalFlags)
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        name, sign, _ = words[at].text.partition("=")
        if name not in flags:
            break
        at += 2 if flags[name].takes_value and not sign else 1
    return words[:at], words[at:]


@dataclass
class _Reader:
    line: Line
    words: list[Word]
    table: type[Table]
    at: int = 0
    bare: bool = False
    warned: bool = False

    def read(self) -> None:
        flags = flags_of(self.table)
        while self.at < len(self.words):
            word = self.words[self.at]
            self.at += 1
            if word.text == "--":
                self.line.command += self.words[self.at :]
                return
            if not _is_flag(word):
                self.bare = self.bare or (not self.line.command and not _has_blank(word))
                self.line.command.append(word)
            elif not self._take(word, flags):
                self._unknown(word, flags)

    def _take(self, word: Word, flags: dict[str, Flag[object]]) -> bool:
        """Read a flag that the table has. Letters after an unquoted command are the command's: ``mpirun -np 2`` names no namespace."""
        if self.line.command and self.bare and not word.text.startswith("--"):
            return False
        name, sign, value = word.text.partition("=")
        skipped = len(name) + 1
        if name not in flags and not name.startswith("--") and len(name) > len("-e"):
            name, value, sign, skipped = name[:2], word.text[2:], "=", 2
        flag = flags.get(name)
        if flag is None:
            return False
        node = _after(word, value, skipped) if sign else self._following(flag, word)
        cursor = Cursor(node, name, self.line.problems)
        if flag.many:
            cursor = Cursor(node, f"{name}[{len(self.line.flags.get(flag.key, []))}]", self.line.problems)
        self._keep(flag, cursor, word)
        return True

    def _following(self, flag: Flag[object], word: Word) -> Word:
        following = self.words[self.at] if self.at < len(self.words) else None
        if following is None or (
            _is_flag(following) and flags_of(self.table).get(following.text.partition("=")[0])
        ):
            following = None
        if not flag.takes_value:
            if following is None or following.text not in _TRUTHS:
                return Word(value="true", line=word.line, column=word.column, text="true")
        elif following is None or (flag.key == _QUEUE and not QUEUE.allows(following.text)):
            return Word(value=None, line=word.line, column=word.column)
        self.at += 1
        return following

    def _keep(self, flag: Flag[object], cursor: Cursor, word: Word) -> None:
        problems, name = self.line.problems, cursor.path.partition("[")[0]
        spot = Spot(path=name, line=word.line, column=word.column)
        if flag.refused:
            problems.add(Code.NOT_TAKEN, spot, f"{name} is not taken: {flag.refused}", fix=flag.fix)
            return
        if flag.key == _QUEUE and cursor.node.text in ("", *_TRUTHS):
            words = "every job waits in a queue; without a name it is the namespace's own"
            warn_idle(Cursor(word, name, problems), name, words, fix=f"write {name}=NAME for another one")
            return
        if cursor.node.value is None:
            problems.add(Code.REQUIRED, spot, f"{name} needs a value", fix=f"write {name}=...")
            return
        given = self.line.flags.setdefault(flag.key, [])
        if given and not flag.many:
            words = f"{name} is given more than once, and the last one counts"
            problems.warn(Code.DUPLICATE, spot, words, fix="remove the others")
        given.append(cursor)
        # Not every sort of job asks for every flag that it knows: what is wrong with a value is told all the same.
        flag.kind.read(cursor)
        if flag.idle:
            warn_idle(Cursor(word, name, problems), name, flag.idle)
        elif flag.kubernetes:
            self.line.kubernetes.append(spot)

    def _unknown(self, word: Word, flags: dict[str, Flag[object]]) -> None:
        name = word.text.partition("=")[0]
        problems = self.line.problems
        spot = Spot(path=name, line=word.line, column=word.column)
        if self.line.command and self.bare:
            self.line.command.append(word)
            if not self.warned:
                self.warned = True
                words = f"{shown(name)} is taken as a part of the replicas' command"
                problems.warn(
                    Code.MISSPELT, spot, words, fix="put the whole command in quotes, or -- before it"
                )
            return
        near = nearest(name, [known for known in flags if known.startswith("--")])
        fix = (
            f"did you mean {near}?" if near else "remove it; a command with flags of its own stands in quotes"
        )
        message = f"{self.line.what} has no flag {shown(name)}"
        allowed = ", ".join(sorted({flag.key for flag in flags.values()}))
        problems.add(Code.UNKNOWN_FIELD, spot, message, found=shown(name), allowed=allowed, fix=fix)


def _is_flag(word: Word) -> bool:
    """Whether a word begins as a flag does; one in quotes that holds blanks is a command."""
    return word.text.startswith("-") and word.text != "-" and not word.text[1:2].isdigit()


def _has_blank(word: Word) -> bool:
    return any(one.isspace() for one in word.text)


def _after(word: Word, value: str, skipped: int) -> Word:
    """The rest of a word as a value, where it stands."""
    literal = word.literal >= skipped
    column = word.column + skipped if literal else word.column
    return Word(
        value=value, line=word.line, column=column, text=value, literal=max(word.literal - skipped, 0)
    )
