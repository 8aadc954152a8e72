"""Split an Arena command line into its sub-command, the flags of its table, and the replicas' command.

As in Arena, a known flag is Arena's wherever it stands; the other words, in order, are the command. An
unknown flag belongs to the command only after an unquoted command has begun, with a warning; elsewhere it is
an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from muster_core.models.problem_codes import Code
from muster_formats.arena.flag_types import Flag
from muster_formats.arena.flags import GlobalFlags
from muster_formats.cursor import Cursor, nearest
from muster_formats.names import QUEUE
from muster_formats.problems import Problems, SourceLocation, shown
from muster_formats.schema import Table
from muster_formats.shell_words import Word

T = TypeVar("T")

_TRUTHS = ("true", "false")
_QUEUE = "--queue"


@dataclass
class ArenaCommand:
    """The given flags by canonical name, and the command. ``location`` is where the line begins.

    ``kubernetes`` lists the flags that affect Kubernetes only.
    """

    location: SourceLocation
    problems: Problems
    what: str
    flags: dict[str, list[Cursor]] = field(default_factory=dict[str, list[Cursor]])
    command: list[Word] = field(default_factory=list[Word])
    kubernetes: list[SourceLocation] = field(default_factory=list[SourceLocation])

    def at(self, flag: Flag[T]) -> Cursor | None:
        """Return where a flag was given last."""
        return self.at_key(flag.key)

    def at_key(self, key: str) -> Cursor | None:
        """Return where a flag was given last, by its canonical name."""
        found = self.flags.get(key)
        return found[-1] if found else None

    def get(self, flag: Flag[T]) -> T | None:
        """Return the value of a flag, or ``None`` if it is absent or was rejected."""
        cursor = self.at(flag)
        return flag.type.read(cursor) if cursor else None

    def all(self, flag: Flag[T]) -> list[T]:
        """Return every value of a repeatable flag, without rejected ones."""
        read = [flag.type.read(cursor) for cursor in self.flags.get(flag.key, [])]
        return [value for value in read if value is not None]

    def map(self, flag: Flag[tuple[str, T]]) -> dict[str, T]:
        """Return the pairs of a repeatable flag; the last value of a key wins."""
        return dict(self.all(flag))

    def location_of(self, flag: Flag[T]) -> SourceLocation:
        """Return where a flag was given, or the start of the line with the flag's name."""
        cursor = self.at(flag)
        return cursor.location if cursor else self.missing_location(flag.key)

    def warn_kubernetes_only(self, *refused: Flag[str]) -> None:
        """Warn about flags that affect Kubernetes only, unless they are in ``refused`` or invalid."""
        names = {name for flag in refused for name in flag.names}
        for location in self.kubernetes:
            if location.path not in names and not self.problems.has_error_at(location.path):
                words = f"{location.path} applies to Kubernetes only; the process runtime ignores it"
                self.problems.warn(Code.KUBERNETES_ONLY, location, words, found=location.path)

    def missing_location(self, name: str) -> SourceLocation:
        """Return the location for a problem about a missing flag."""
        return SourceLocation(path=name, line=self.location.line, column=self.location.column)


def flags_of(table: type[Table]) -> dict[str, Flag[object]]:
    """Return the flags of a table by each of their names."""
    flags = cast("Iterable[Flag[object]]", table.fields().values())
    return {name: flag for flag in flags for name in flag.names}


def read_flags(args: ArenaCommand, words: list[Word], table: type[Table]) -> None:
    """Read words into ``args`` by a table; report unknown, ignored and unsupported flags."""
    _FlagReader(args, words, table).read()


def skip_globals(words: list[Word]) -> tuple[list[Word], list[Word]]:
    """Split words before the first that is not a flag of the ``arena`` program."""
    flags = flags_of(GlobalFlags)
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        name, sign, _ = words[at].text.partition("=")
        if name not in flags:
            break
        at += 2 if flags[name].takes_value and not sign else 1
    return words[:at], words[at:]


@dataclass
class _FlagReader:
    args: ArenaCommand
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
                self.args.command += self.words[self.at :]
                return
            if not _is_flag(word):
                self.bare = self.bare or (not self.args.command and not _has_blank(word))
                self.args.command.append(word)
            elif not self._take(word, flags):
                self._unknown(word, flags)

    def _take(self, word: Word, flags: dict[str, Flag[object]]) -> bool:
        """Read a flag of the table. After an unquoted command has begun, single letters belong to it: in
        ``mpirun -np 2`` there is no namespace.
        """
        if self.args.command and self.bare and not word.text.startswith("--"):
            return False
        name, sign, value = word.text.partition("=")
        skipped = len(name) + 1
        if name not in flags and not name.startswith("--") and len(name) > len("-e"):
            name, value, sign, skipped = name[:2], word.text[2:], "=", 2
        flag = flags.get(name)
        if flag is None:
            return False
        node = _after(word, value, skipped) if sign else self._following(flag, word)
        cursor = Cursor(node, name, self.args.problems)
        if flag.many:
            cursor = Cursor(node, f"{name}[{len(self.args.flags.get(flag.key, []))}]", self.args.problems)
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
        problems, name = self.args.problems, cursor.path.partition("[")[0]
        location = SourceLocation(path=name, line=word.line, column=word.column)
        if flag.rejected:
            problems.add(
                Code.UNSUPPORTED, location, f"{name} is not supported: {flag.rejected}", fix=flag.fix
            )
            return
        if flag.key == _QUEUE and cursor.node.text in ("", *_TRUTHS):
            words = "every job waits in a queue; without a name it is the namespace's"
            Cursor(word, name, problems).warn_ignored(name, words, fix=f"write {name}=NAME to choose another")
            return
        if cursor.node.value is None:
            problems.add(Code.REQUIRED, location, f"{name} needs a value", fix=f"write {name}=...")
            return
        given = self.args.flags.setdefault(flag.key, [])
        if given and not flag.many:
            words = f"{name} is repeated; the last value is used"
            problems.warn(Code.DUPLICATE, location, words, fix="remove the others")
        given.append(cursor)
        # Values of flags that this kind of job does not use are checked all the same.
        flag.type.read(cursor)
        if flag.ignored:
            Cursor(word, name, problems).warn_ignored(name, flag.ignored)
        elif flag.kubernetes:
            self.args.kubernetes.append(location)

    def _unknown(self, word: Word, flags: dict[str, Flag[object]]) -> None:
        name = word.text.partition("=")[0]
        problems = self.args.problems
        location = SourceLocation(path=name, line=word.line, column=word.column)
        if self.args.command and self.bare:
            self.args.command.append(word)
            if not self.warned:
                self.warned = True
                words = f"{shown(name)} is taken as part of the replicas' command"
                problems.warn(
                    Code.MISSPELT, location, words, fix="quote the whole command, or write -- before it"
                )
            return
        near = nearest(name, [known for known in flags if known.startswith("--")])
        fix = f"did you mean {near}?" if near else "remove it; quote a command that has flags"
        message = f"{self.args.what} has no flag {shown(name)}"
        allowed = ", ".join(sorted({flag.key for flag in flags.values()}))
        problems.add(Code.UNKNOWN_FIELD, location, message, found=shown(name), allowed=allowed, fix=fix)


def _is_flag(word: Word) -> bool:
    """Return whether a word looks like a flag; a quoted word with blanks is a command."""
    return word.text.startswith("-") and word.text != "-" and not word.text[1:2].isdigit()


def _has_blank(word: Word) -> bool:
    return any(one.isspace() for one in word.text)


def _after(word: Word, value: str, skipped: int) -> Word:
    """Return the rest of a word as a value, with its location."""
    literal = word.literal >= skipped
    column = word.column + skipped if literal else word.column
    return Word(
        value=value, line=word.line, column=column, text=value, literal=max(word.literal - skipped, 0)
    )
