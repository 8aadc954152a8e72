"""What a table declares of a field, its section says: nothing that is given and not acted upon passes in silence."""

from muster_core.models import Severity
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.kinds import Ignored, Text
from muster_formats.problems import Problems
from muster_formats.table import Effect, Field, Section, Table
from muster_formats.yaml_source import read_source


class _Keys(Table):
    used = Field("used", Text())
    idle = Field("idle", Ignored(), idle="nobody asks for it")
    refused = Field("refused", Ignored(), refused="it belongs elsewhere", fix="write it there")
    useless = Field("useless", Ignored(), refused="there is no such thing")
    partly = Field("partly", Text(), partly="only the short ones")
    handed_on = Field("kept", Ignored(), kubernetes=True)


def _section(text: str) -> Problems:
    problems = Problems()
    source = read_source(text, problems)
    Section(Cursor(source.parts[0], "", problems), _Keys)
    return problems


def test_what_is_used_and_what_is_null_says_nothing() -> None:
    assert not _section("{used: yes please, idle: null, refused: null, kept: 1, partly: all of it}").found


def test_what_is_idle_is_a_warning_with_its_reason_and_its_place() -> None:
    (problem,) = _section("used: a\nidle: 3\n").found
    assert (problem.code, problem.severity) == (Code.NOT_ACTED_UPON, Severity.WARNING)
    assert (problem.path, problem.line) == ("idle", 2)
    assert "nobody asks for it" in problem.message


def test_what_is_refused_is_an_error_with_its_reason_and_its_remedy() -> None:
    (problem,) = _section("refused: {a: 1}").found
    assert (problem.code, problem.severity, problem.fix) == (Code.NOT_TAKEN, Severity.ERROR, "write it there")
    assert "it belongs elsewhere" in problem.message


def test_what_is_refused_without_a_remedy_has_none() -> None:
    (problem,) = _section("useless: 1").found
    assert (problem.code, problem.fix) == (Code.NOT_TAKEN, "")


def test_what_is_refused_is_never_what_was_meant() -> None:
    (problem,) = _section("refusd: 1").found
    assert problem.code == Code.UNKNOWN_FIELD
    assert "refused" not in problem.fix
    assert problem.allowed == "idle, kept, partly, used"


def test_a_field_knows_what_becomes_of_it() -> None:
    effects = [field.effect for field in _Keys.fields().values()]
    assert effects == [
        Effect.ACTED_UPON,
        Effect.WARNED,
        Effect.REFUSED,
        Effect.REFUSED,
        Effect.PARTLY,
        Effect.KUBERNETES,
    ]
