"""Problems rendered for a terminal, and problems of generated mappings."""

from muster_core.models import Problem, Severity
from muster_core.models.problem_codes import Code
from muster_formats import parse, render_problems
from muster_formats.problems import Problems, RelocatedProblems, SourceLocation

TEXT = "apiVersion: muster.dev/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  roles:\n    worker:\n      image: x\n      replica: 2\n"


def test_a_problem_shows_its_line_a_caret_and_the_fix() -> None:
    reported = render_problems(parse(TEXT).problems, TEXT, "job.yaml", colour=False)
    first, quoted, caret, at, allowed, fix = reported.splitlines()
    assert first == "job.yaml:8:7: error[UnknownField] worker has no field replica"
    assert quoted == "          replica: 2"
    assert caret == "          ^"
    assert at == "  at: spec.roles.worker.replica"
    assert allowed.startswith("  allowed: annotations, args, command")
    assert fix == "  fix: did you mean replicas?"


def test_colours_are_used_on_request() -> None:
    problems = parse(TEXT).problems
    assert "\x1b[" in render_problems(problems, TEXT, "job.yaml", colour=True)
    assert "\x1b[" not in render_problems(problems, TEXT, "job.yaml", colour=False)


def test_a_problem_without_a_line_quotes_none() -> None:
    problem = Problem(
        code="Conflict", path="roles[0].min", message="min 3 is above max 2", severity=Severity.WARNING
    )
    assert (
        render_problems([problem], "", "spec")
        == "spec: warning[Conflict] min 3 is above max 2\n  at: roles[0].min\n"
    )


def test_no_problems_give_no_text() -> None:
    assert render_problems((), TEXT, "job.yaml") == ""


def test_a_long_line_is_quoted_around_its_caret() -> None:
    text = TEXT.replace("image: x", "image: x, ").replace("replica: 2", "command: [" + '"x", ' * 100 + "7]")
    problems = parse(text).problems
    _, quoted, caret, *_ = render_problems(problems, text, "job.yaml").splitlines()
    assert len(quoted) < 130
    assert quoted[caret.index("^")] == "7"


def test_control_characters_of_a_document_are_escaped() -> None:
    text = 'apiVersion: muster.dev/v1\nkind: Job\nmetadata: {"\\e[31mname": a}\n'
    assert "\x1b" not in render_problems(parse(text).problems, text, "job\x1b.yaml")


def test_problems_of_a_generated_mapping_have_the_document_s_paths() -> None:
    problems = Problems()
    relocated = RelocatedProblems(problems)
    relocated.record("spec.template", "run.container")
    relocated.add(Code.REQUIRED, SourceLocation(path="spec.template.image"), "template has no image")
    assert [(one.path, one.message) for one in relocated.ordered()] == [
        ("run.container.image", "container has no image")
    ]
    assert relocated.has_errors
    assert relocated.has_error_at("spec.template")
    assert not relocated.has_error_at("spec.other")
