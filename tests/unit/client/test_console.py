"""What others wrote does nothing to the user's terminal."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from muster._cli.history import HistoryPrinter, HistoryRow
from muster._cli.options import State
from muster._cli.output import print_table, table

NASTY = "clear \x1b[2J bell \x07 title \x1b]0;x\x07 right-to-left \u202e"


@pytest.fixture
def console() -> Console:
    made = State().out
    made.file = io.StringIO()
    return made


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_control_characters_of_a_message_are_escaped(console: Console):
    HistoryPrinter(console).tell(HistoryRow(time="08:00:00", word="failed", text=NASTY, style="red"))
    print_table(console, table(["NAME", "REASON"], [["demo", NASTY]]))
    console.print(NASTY)

    text = shown(console)
    assert all(character == "\n" or character.isprintable() for character in text)
    assert text.count(r"clear \x1b[2J bell") == 3


def test_styles_and_lines_of_the_console_itself_remain():
    made = State().out
    made.file = io.StringIO()
    made._force_terminal = True  # pyright: ignore[reportPrivateUsage]
    made.print(Text("one\ntwo", style="bold red"))
    assert "one" in shown(made)
    assert "two" in shown(made).splitlines()[1]
