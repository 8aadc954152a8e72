"""Expressions in Polyaxon 1.x documents: names are looked up, never executed; unknown names are errors."""

import time
from typing import Any

import pytest
import yaml

from muster_core.models import Job, Severity
from muster_core.models.problem_codes import Code
from muster_formats import Parsed, parse

CONTAINER = {"image": "foo", "command": ["train"]}


def operation(
    params: Any = None, inputs: Any = None, *, outputs: Any = None, run: Any = None, **fields: Any
) -> Parsed:
    """An operation of one job, with these parameters and inputs."""
    component = {"inputs": inputs, "outputs": outputs, "run": run or {"kind": "job", "container": CONTAINER}}
    document = {
        "version": 1.1,
        "kind": "operation",
        "name": "exp",
        "params": params,
        "component": component,
        **fields,
    }
    return parse(yaml.safe_dump(document, sort_keys=False))


def job_of(parsed: Parsed) -> Job:
    assert [problem for problem in parsed.problems if problem.severity is Severity.ERROR] == []
    return parsed.jobs[0]


def args_of(parsed: Parsed) -> tuple[str, ...]:
    return job_of(parsed).roles[0].template.args


def codes_and_paths(parsed: Parsed) -> list[tuple[str, str]]:
    return [(problem.code, problem.path) for problem in parsed.problems]


def running(*args: str, **container: Any) -> dict[str, Any]:
    return {"kind": "job", "container": {**CONTAINER, "args": list(args), **container}}


@pytest.mark.parametrize(
    ("given", "expression", "text"),
    [
        ({"x": 3}, "{{ x }}", "3"),
        ({"x": 3}, "{{x}}", "3"),
        ({"x": 3}, "{{ params.x }}", "3"),
        ({"x": 3}, "{{ params.x.value }}", "3"),
        ({"x": 3}, "{{ params.x.as_str }}", "3"),
        ({"x": 3}, "{{ inputs.x }}", "3"),
        ({"x": 3}, "{{ params.x.as_arg }}", "--x=3"),
        ({"x": 0.1}, "--lr={{ x }}", "--lr=0.1"),
        ({"x": True}, "{{ x }}", "true"),
        ({"x": [1, "a"]}, "{{ x }}", '[1,"a"]'),
        ({"x": [1, "a"]}, "{{ x[1] }}", "a"),
        ({"x": {"value": {"conv1": {"size": 2}}}}, "{{ x.conv1.size }}", "2"),
        ({"x": {"value": {"a-b": 2}}}, "{{ x['a-b'] }}", "2"),
        ({"x": {"value": "one"}, "y": 2}, "{{ x }}-{{ y }}", "one-2"),
        ({"x": "{{ globals.name }}"}, "{{ x }}", "exp"),
        ({}, "{{ globals.name }} in {{ globals.namespace }}", "exp in default"),
        ({}, "{{ globals.uuid }}", "$(MUSTER_JOB_ID)"),
    ],
)
def test_a_name_is_replaced_by_its_value(given: dict[str, Any], expression: str, text: str) -> None:
    assert args_of(operation(given, run=running(expression))) == (text,)


def test_a_value_keeps_its_type_outside_strings() -> None:
    run = {"kind": "tfjob", "worker": {"replicas": "{{ n }}", "container": CONTAINER}}
    job = job_of(operation({"n": 4}, run=run, termination={"maxRetries": "{{ n }}"}))
    assert (job.roles[0].replicas, job.run.backoff_limit) == (4, 4)


def test_a_whole_section_may_be_a_parameter() -> None:
    run = {"kind": "job", "container": CONTAINER, "environment": "{{ where }}"}
    job = job_of(operation({"where": {"value": {"nodeSelector": {"zone": "a"}}}}, run=run))
    assert job.roles[0].template.node_selector == {"zone": "a"}


def test_labels_and_variables_become_strings() -> None:
    run = running(env=[{"name": "N", "value": "{{ n }}"}]) | {"environment": {"labels": {"n": "{{ n }}"}}}
    template = job_of(operation({"n": 4}, run=run)).roles[0].template
    assert (template.env, template.labels) == ({"N": "4"}, {"n": "4"})


def test_an_empty_argument_is_left_out() -> None:
    inputs = [
        {"name": "check", "type": "bool", "value": False},
        {"name": "steps", "type": "int", "isOptional": True},
    ]
    run = running("{{ params.check.as_arg }}", "{{ params.steps.as_arg }}", "", "end")
    assert args_of(operation(None, inputs, run=run)) == ("", "end")


@pytest.mark.parametrize(
    ("expression", "code", "words"),
    [
        ("{{ learning_rat }}", Code.NOT_ALLOWED, "did you mean learning_rate?"),
        ("{{ params.nothing }}", Code.NOT_ALLOWED, "there is no parameter nothing"),
        ("{{ globals.run_artifacts_path }}/x", Code.UNSUPPORTED, "Muster has no artifact store"),
        ("{{ run_outputs_path }}", Code.UNSUPPORTED, "Muster has no artifact store"),
        ("{{ globals.project_name }}", Code.UNSUPPORTED, "no projects"),
        ("{{ globals.whatever }}", Code.UNSUPPORTED, "known are globals.namespace"),
        ("{{ learning_rate | upper }}", Code.UNSUPPORTED, "an expression must be a name"),
        ("{{ 1 if learning_rate else 0 }}", Code.UNSUPPORTED, "an expression must be a name"),
        ("{{ ''.__class__ }}", Code.UNSUPPORTED, "an expression must be a name"),
        ("{{ learning_rate.__class__ }}", Code.UNSUPPORTED, "has no such element"),
        ("{% if learning_rate %}x{% endif %}", Code.UNSUPPORTED, "conditions, loops"),
        ("{{ learning_rate }", Code.UNSUPPORTED, "is not closed"),
        ("{{ connections.data }}", Code.NOT_ALLOWED, "there is no parameter connections"),
    ],
)
def test_an_expression_that_cannot_be_expanded_is_an_error_at_its_line(
    expression: str, code: Code, words: str
) -> None:
    parsed = operation({"learning_rate": 0.1}, run=running(expression))
    (problem,) = parsed.problems
    assert (problem.code, problem.path) == (code, "component.run.container.args[0]")
    assert words in f"{problem.message} {problem.fix} {problem.allowed}"


def test_a_run_time_value_outside_commands_is_an_error_that_names_the_variable() -> None:
    parsed = operation(run=running(env=[{"name": "ID", "value": "{{ globals.uuid }}"}]))
    (problem,) = parsed.problems
    assert (problem.code, problem.fix) == (Code.UNSUPPORTED, "read MUSTER_JOB_ID in the program")


@pytest.mark.parametrize(
    ("declared", "value", "code"),
    [
        ({"type": "int"}, "three", Code.WRONG_TYPE),
        ({"type": "int"}, 1.5, Code.WRONG_TYPE),
        ({"type": "int"}, True, Code.WRONG_TYPE),
        ({"type": "float"}, "nan", Code.WRONG_TYPE),
        ({"type": "bool"}, 1, Code.WRONG_TYPE),
        ({"type": "str"}, [1], Code.WRONG_TYPE),
        ({"type": "dict"}, 1, Code.WRONG_TYPE),
        ({"type": "List[int]"}, [1, "b"], Code.WRONG_TYPE),
        ({"type": "int", "isList": True}, 1, Code.WRONG_TYPE),
        ({"type": "int", "validation": {"gt": 3}}, 3, Code.OUT_OF_RANGE),
        ({"type": "int", "validation": {"ge": 4}}, 3, Code.OUT_OF_RANGE),
        ({"type": "float", "validation": {"lt": 0.5}}, 0.5, Code.OUT_OF_RANGE),
        ({"type": "float", "validation": {"le": 0.4}}, 0.5, Code.OUT_OF_RANGE),
        ({"type": "str", "validation": {"options": ["a", "b"]}}, "c", Code.NOT_ALLOWED),
        ({"type": "str", "options": ["a", "b"]}, "c", Code.NOT_ALLOWED),
        ({"type": "str", "validation": {"maxLength": 2}}, "abc", Code.OUT_OF_RANGE),
        ({"type": "List[int]", "validation": {"minItems": 2}}, [1], Code.OUT_OF_RANGE),
    ],
)
def test_a_value_is_validated_against_its_input(declared: dict[str, Any], value: Any, code: Code) -> None:
    parsed = operation({"x": {"value": value}}, [{"name": "x", **declared}])
    assert codes_and_paths(parsed) == [(code, "params.x.value")]


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [("int", "3", 3), ("float", "1e-3", 0.001), ("bool", "True", True), ("str", 3, "3")],
)
def test_a_string_is_parsed_as_the_type_of_its_input(kind: str, value: Any, read: Any) -> None:
    parsed = operation({"x": value}, [{"name": "x", "type": kind}])
    assert job_of(parsed).options.parameters == {"x": read}


def test_an_input_without_a_value_requires_a_parameter() -> None:
    (problem,) = operation(None, [{"name": "activation", "type": "str"}]).problems
    assert (problem.code, problem.path) == (Code.REQUIRED, "component.inputs[0].value")
    assert "params: {activation: ...}" in problem.fix


def test_an_output_needs_no_value_and_may_be_given_one() -> None:
    outputs = [{"name": "accuracy", "type": "float"}, {"name": "image", "type": "str"}]
    job = job_of(operation({"image": "a:b"}, None, outputs=outputs, strictParams=True))
    assert job.options.parameters == {"image": "a:b"}


@pytest.mark.parametrize(
    ("fields", "param", "refused"),
    [
        ({}, 1, False),
        ({}, {"value": 1, "contextOnly": False}, True),
        ({"strictParams": True}, 1, True),
        ({"strictParams": True}, {"value": 1, "contextOnly": True}, False),
    ],
)
def test_a_parameter_without_an_input_is_taken_unless_params_are_strict(
    fields: dict[str, Any], param: Any, refused: bool
) -> None:
    parsed = operation({"count": param}, [{"name": "coun", "type": "int", "value": 2}], **fields)
    assert codes_and_paths(parsed) == ([(Code.NOT_ALLOWED, "params.count")] if refused else [])


@pytest.mark.parametrize("name", ["globals", "params", "inputs"])
def test_a_reserved_name_cannot_be_an_input(name: str) -> None:
    assert codes_and_paths(operation(None, [{"name": name, "value": 1}])) == [
        ("BadName", "component.inputs[0].name")
    ]


def test_a_parameter_goes_into_the_environment_of_every_replica() -> None:
    run = {"kind": "tfjob", "ps": {"container": CONTAINER}, "worker": {"container": CONTAINER}}
    job = job_of(operation({"x": {"value": 5, "toEnv": "X"}}, run=run))
    assert [role.template.env for role in job.roles] == [{"X": "5"}, {"X": "5"}]


@pytest.mark.parametrize(
    "text",
    ["{{" * 200_000, "{% " * 200_000, "{{ x " * 100_000, "{{ x }}" * 100_000, "}}" * 300_000],
    ids=["opened", "statements", "never closed", "many", "closed"],
)
def test_expansion_of_any_text_is_bounded_in_time_and_size(text: str) -> None:
    began = time.process_time()
    parsed = operation({"x": "y" * 1000}, run=running(text))
    assert time.process_time() - began < 1
    assert len(parsed.problems) <= 1


def test_values_that_multiply_are_bounded() -> None:
    parsed = operation({"x": "y" * 10_000}, run=running(*["{{ x }}"] * 1000))
    assert [problem.code for problem in parsed.problems] == [Code.TOO_LARGE]


def test_sections_that_multiply_are_bounded() -> None:
    volumes = ["{{ x }}"] * 10_000
    began = time.process_time()
    parsed = operation({"x": {"value": {"name": "y" * 100_000}}}, run=running() | {"volumes": volumes})
    assert time.process_time() - began < 1
    assert Code.TOO_LARGE in {problem.code for problem in parsed.problems}
    assert parsed.jobs == ()
