import io
from datetime import datetime

from muster_local.log_lines import LogLine, parse_line, supervisor_line
from muster_local.output import LogView, wants_colour

JSON = (
    b'{"ts":"2026-01-02T12:00:01.250Z","level":"info","service":"scheduler","instance":"scheduler","msg":"placed demo",'
    b'"logger":"muster_scheduler.term","trace_id":"4bf9","span_id":"00f0","job":"j-abc","gpus":2,"nodes":["n1","n2"],'
    b'"why":"it fits"}'
)


def shown(*lines: LogLine, verbose: bool = False, colour: bool = False) -> str:
    stream = io.StringIO()
    view = LogView(stream, colour=colour, verbose=verbose)
    for line in lines:
        view.show(line)
    return stream.getvalue()


def test_a_service_line_is_shown_with_time_source_and_fields() -> None:
    line = parse_line("scheduler", JSON)
    clock = datetime.fromisoformat("2026-01-02T12:00:01Z").astimezone().strftime("%H:%M:%S")
    expected = f'{clock} scheduler      placed demo job=j-abc gpus=2 nodes=["n1","n2"] why=\'it fits\'\n'
    assert shown(line) == expected


def test_verbose_also_shows_tracing_fields() -> None:
    text = shown(parse_line("scheduler", JSON), verbose=True)
    assert "trace_id=4bf9" in text
    assert "logger=muster_scheduler.term" in text


def test_a_warning_has_a_colour_or_its_level() -> None:
    line = supervisor_line("gateway", "warning", "slow")
    assert "WARNING slow" in shown(line)
    assert "\x1b[33mslow\x1b[0m" in shown(line, colour=True)


def test_every_program_has_a_colour_that_its_instances_share() -> None:
    def colour(source: str) -> str:
        text = shown(supervisor_line(source, "info", "x"), colour=True)
        return text.split("\x1b[")[3].partition("m")[0]

    sources = ("gateway", "spec-validator", "scheduler", "pod-launcher", "scaler", "status-tracker", "up")
    assert len({colour(source) for source in sources}) == len(sources)
    assert colour("scheduler-2") == colour("scheduler")


def test_broker_lines_are_shown_from_warnings_on() -> None:
    info = parse_line("broker", b"[7] 2026/01/02 12:00:01.000000 [INF] Server is ready")
    warning = parse_line("broker", b"[7] 2026/01/02 12:00:01.000000 [WRN] Slow Consumer")
    assert info.message == "Server is ready"
    assert shown(info) == ""
    assert "Server is ready" in shown(info, verbose=True)
    assert "WARNING Slow Consumer" in shown(warning)


def test_a_stack_trace_has_the_prefix_of_its_line() -> None:
    line = parse_line("scaler", b'{"level":"error","msg":"broke","exception":"Traceback\\n  File x"}')
    rows = shown(line).splitlines()
    assert [row.split(maxsplit=2)[1] for row in rows] == ["scaler"] * 3
    assert rows[2].endswith("  File x")


def test_lines_that_are_not_json_are_shown_unchanged() -> None:
    line = parse_line("gateway", b"No module named muster_gateway")
    assert not line.structured
    assert shown(line).endswith("gateway        No module named muster_gateway\n")
    assert parse_line("gateway", b"{broken").message == "{broken"
    assert parse_line("gateway", b"\xff\xfe").message


def test_control_characters_are_escaped() -> None:
    text = shown(supervisor_line("gateway", "info", "a\x1b[2Jb\nc", name="x\ry"))
    assert text.count("\n") == 1
    assert "\\x1b[2Jb\\nc name=x\\ry" in text


def test_a_closed_stream_is_ignored() -> None:
    stream = io.StringIO()
    view = LogView(stream, colour=False)
    stream.close()
    view.show(supervisor_line("up", "info", "hidden"))


def test_colours_need_a_terminal_without_no_color() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert wants_colour(Terminal(), {})
    assert not wants_colour(Terminal(), {"NO_COLOR": "1"})
    assert not wants_colour(io.StringIO(), {})
