"""A text is split as a shell splits it, and every word knows where it stands."""

import pytest
from hypothesis import given, strategies as st

from muster_core.models import Problem
from muster_formats.problems import Problems
from muster_formats.shell_words import Word, first_word, join_words, read_commands


def words_of(text: str) -> list[list[Word]]:
    problems = Problems()
    commands = read_commands(text, problems)
    assert problems.items == []
    return [
        [word for word in command.value if isinstance(word, Word)]
        for command in commands
        if isinstance(command.value, list)
    ]


def texts_of(text: str) -> list[list[str]]:
    return [[word.text for word in command] for command in words_of(text)]


def problems_of(text: str) -> list[Problem]:
    problems = Problems()
    read_commands(text, problems)
    return problems.items


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("a b  c\td", [["a", "b", "c", "d"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a=b'c'\"d\"e", [["a=bcde"]]),
        ("a '' \"\"", [["a", "", ""]]),
        ("a \\\n  b \\\r\n c", [["a", "b", "c"]]),
        ("a # b\nc", [["a"], ["c"]]),
        ("a#b", [["a#b"]]),
        ("a; b && c", [["a"], ["b"], ["c"]]),
        ("$ a b", [["a", "b"]]),
        ("'$a' \"\\$b\" \\$c a$", [["$a", "$b", "$c", "a$"]]),
        ('"a\nb" "c\\\nd"', [["a\nb", "cd"]]),
        ("'a`b|c'", [["a`b|c"]]),
        ("", []),
        ("# nothing", []),
    ],
)
def test_quotes_escapes_comments_and_continuations(text: str, commands: list[list[str]]) -> None:
    assert texts_of(text) == commands


def test_every_word_has_its_position() -> None:
    ((first, second, third),) = words_of("# x\n a 'b c' \\\n   --d=e")
    assert [(word.line, word.column) for word in (first, second, third)] == [(2, 2), (2, 4), (3, 4)]
    assert [word.literal for word in (first, second, third)] == [1, 0, 5]


@pytest.mark.parametrize(
    ("text", "place", "found"),
    [
        ("a $B", (1, 3), "$B"),
        ('a "x ${HOME}"', (1, 6), "${HOME}"),
        ("a $(b)", (1, 3), "$"),
        ("a\nb `c`", (2, 3), "`"),
        ("a | b", (1, 3), "|"),
        ("a > b", (1, 3), ">"),
        ("a &", (1, 3), "&"),
    ],
)
def test_what_only_a_shell_could_do_is_refused(text: str, place: tuple[int, int], found: str) -> None:
    problem = problems_of(text)[0]
    assert (problem.code, (problem.line, problem.column), problem.found) == ("Unsupported", place, found)


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_quote_is_closed(quote: str) -> None:
    (problem,) = problems_of(f"a b\nc {quote}d")
    assert (problem.code, problem.line, problem.column) == ("BadCommand", 2, 3)


def test_too_many_words_are_refused() -> None:
    assert [problem.code for problem in problems_of("a " * 50_000)] == ["TooLarge"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("arena submit", "arena"),
        ("\n# arena\n  muster submit", "muster"),
        ("$ arena x", "arena"),
        ("arena: 1", "arena:"),
        ("", ""),
        ("# only", ""),
    ],
)
def test_the_first_word_identifies_a_command(text: str, word: str) -> None:
    assert first_word(text) == word


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r")), min_size=1))
def test_words_that_are_joined_are_split_again(words: list[str]) -> None:
    assert texts_of(f"x {join_words(words)}") == [["x", *words]]


@given(st.text("ab'\"\\ \n$`;&|#(){}="))
def test_any_text_is_answered(text: str) -> None:
    read_commands(text, Problems())
