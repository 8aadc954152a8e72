"""Text as a shell would split it -> commands and their words, each knowing where it stands.

A document may be a command line from a script: quotes, escapes, comments and continued lines mean what they mean to
a POSIX shell. What only a running shell could do (variables, substitutions, pipes, redirections) is refused rather than kept as it is,
since what was meant is not in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from muster_core.models.problem_codes import Code
from muster_formats.nodes import MAX_NODES, MAX_PARTS, YamlNode
from muster_formats.problems import Problems, SourceLocation, shown

_BLANK = frozenset(" \t\r")
_SEPARATORS = frozenset(";\n")
_OPERATORS = frozenset("|&<>()`")
_PROMPT = re.compile(r"(?:\s|#[^\n]*(?:\n|\Z))*(?:\$[ \t]+)?([^\s#]*)")
_PLAIN = re.compile(r"[^\s'\"\\;|&<>()`]+")
_SAFE = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_VARIABLE = re.compile(r"\$(?=[A-Za-z_0-9{(@*#?!-])")
_NAMED = re.compile(r"\$?\{?[A-Za-z0-9_]*\}?|.")
_ESCAPED_IN_QUOTES = frozenset('$`"\\\n')


@dataclass(eq=False)
class Word(YamlNode):
    """A word of a command. Its first ``literal`` characters stand in the text as they are, without quotes or escapes between them."""

    literal: int = 0


def first_word(text: str) -> str:
    """The first word of a text, after comments, blank lines and a prompt; empty if there is none."""
    found = _PROMPT.match(text)
    return found[1] if found else ""


def is_command(node: YamlNode) -> bool:
    """Whether a node is a command of ``read_commands``."""
    return (
        isinstance(node.value, list)
        and bool(node.value)
        and all(isinstance(word, Word) for word in node.value)
    )


def read_commands(text: str, problems: Problems) -> tuple[YamlNode, ...]:
    """The commands of a text, one node each: a list of ``Word``. What is wrong goes to ``problems``."""
    reader = _WordReader(text, problems)
    reader.read()
    return tuple(reader.commands)


@dataclass
class _WordReader:
    text: str
    problems: Problems
    commands: list[YamlNode] = field(default_factory=list[YamlNode])
    at: int = 0
    line: int = 1
    line_start: int = 0
    words: list[YamlNode] = field(default_factory=list[YamlNode])
    count: int = 0

    def read(self) -> None:
        while self.at < len(self.text) and not self.problems.full:
            one = self.text[self.at]
            if one in _BLANK:
                self._step()
            elif self.text.startswith(("\\\n", "\\\r\n"), self.at):
                self._step(self.text.index("\n", self.at) - self.at + 1)
            elif one in _SEPARATORS or self.text.startswith("&&", self.at):
                self._end_command()
                self._step(2 if one == "&" else 1)
            elif one == "#":
                end = self.text.find("\n", self.at)
                self._step((len(self.text) if end < 0 else end) - self.at)
            elif one in _OPERATORS:
                self._report_operator(one)
                self._step()
            elif not self._word():
                return
        self._end_command()

    def _step(self, count: int = 1) -> None:
        newlines = self.text.count("\n", self.at, self.at + count)
        if newlines:
            self.line += newlines
            self.line_start = self.text.rindex("\n", self.at, self.at + count) + 1
        self.at += count

    def _location(self) -> SourceLocation:
        return SourceLocation(path="", line=self.line, column=self.at - self.line_start + 1)

    def _word(self) -> bool:
        """Read one word; whether reading goes on after it."""
        location, start = self._location(), self.at
        parts: list[str] = []
        literal = 0
        plain = True
        while self.at < len(self.text) and not self.problems.full:
            one = self.text[self.at]
            if one in _BLANK or one in _SEPARATORS or one in _OPERATORS:
                break
            if one in "'\"\\":
                if plain:
                    plain, literal = False, self.at - start
                if not self._quoted(one, parts):
                    return False
            else:
                end = self._run_of_plain()
                parts.append(self.text[self.at : end])
                self._step(end - self.at)
        text = "".join(parts)
        self.count += 1
        if self.count > MAX_NODES or len(self.commands) >= MAX_PARTS:
            allowed = f"at most {MAX_PARTS} commands and {MAX_NODES} words"
            self.problems.add(Code.TOO_LARGE, location, "the document holds too much", allowed=allowed)
            return False
        self.words.append(
            Word(
                value=text,
                line=location.line,
                column=location.column,
                text=text,
                literal=len(text) if plain else literal,
            )
        )
        return True

    def _run_of_plain(self) -> int:
        found = _PLAIN.match(self.text, self.at)
        end = found.end() if found else self.at + 1
        if variable := _VARIABLE.search(self.text, self.at, end + 1):
            self._report_variable(variable.start())
        return end

    def _quoted(self, quote: str, parts: list[str]) -> bool:
        """Read an escape or a quoted run; whether it was closed."""
        location = self._location()
        if quote == "\\":
            if not self.text.startswith(("\\\n", "\\\r\n"), self.at):
                parts.append(self.text[self.at + 1 : self.at + 2])
                self._step(2)
            else:
                self._step(self.text.index("\n", self.at) - self.at + 1)
            return True
        end = self._closing(quote)
        if end < 0:
            words = f"the quote {quote} is not closed"
            self.problems.add(Code.BAD_COMMAND, location, words, fix=f"add {quote} where the text ends")
            return False
        inner = self.text[self.at + 1 : end]
        parts.append(inner if quote == "'" else self._unescaped(inner))
        self._step(end + 1 - self.at)
        return True

    def _closing(self, quote: str) -> int:
        if quote == "'":
            return self.text.find("'", self.at + 1)
        at = self.at + 1
        while at < len(self.text):
            if self.text[at] == "\\":
                at += 2
            elif self.text[at] == quote:
                return at
            else:
                at += 1
        return -1

    def _unescaped(self, inner: str) -> str:
        parts: list[str] = []
        at = 0
        while at < len(inner):
            one = inner[at]
            following = inner[at + 1 : at + 2]
            if one == "\\" and following in _ESCAPED_IN_QUOTES:
                parts.append("" if following == "\n" else following)
                at += 2
                continue
            if one == "`" or _VARIABLE.match(inner, at):
                self._report_variable(self.at + 1 + at)
            parts.append(one)
            at += 1
        return "".join(parts)

    def _report_variable(self, index: int) -> None:
        if self.problems.full:
            return
        newline = self.text.rfind("\n", 0, index)
        location = SourceLocation(path="", line=self.text.count("\n", 0, index) + 1, column=index - newline)
        found = _NAMED.match(self.text, index)
        self.problems.add(
            Code.UNSUPPORTED,
            location,
            "no shell reads this document, so nothing is replaced in it",
            found=shown(found[0] if found else "$"),
            fix=r"write the value itself; \$ leaves it to the shell of the replica",
        )

    def _report_operator(self, one: str) -> None:
        self.problems.add(
            Code.UNSUPPORTED,
            self._location(),
            f"{one} is for a shell, and no shell reads this document",
            found=one,
            fix="put it in quotes if it belongs to the command of the replicas",
        )

    def _end_command(self) -> None:
        words, self.words = self.words, []
        if words and words[0].value == "$":
            words = words[1:]
        if words:
            first = words[0]
            self.commands.append(YamlNode(value=words, line=first.line, column=first.column, size=len(words)))


def join_words(words: Iterable[str]) -> str:
    """The text that is split into ``words`` again."""
    return " ".join(word if _SAFE.fullmatch(word) else _in_quotes(word) for word in words)


def _in_quotes(word: str) -> str:
    return "'" + word.replace("'", "'\"'\"'") + "'"
