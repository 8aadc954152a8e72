"""Problems of an Arena command line are reported at the flag, with the likely remedy."""

import pytest

from muster_core.models import Problem, RestartPolicy, Severity, Toleration
from muster_formats import Parsed, parse
from muster_formats.arena.command_line import flags_of
from muster_formats.arena.flags import TensorFlowFlags
from muster_formats.arena.jobs import SUB_COMMANDS, SubCommand

START = "arena submit tf --name=a "


def problem(command: str) -> Problem:
    """The one problem of a command."""
    (found,) = parse(command).problems
    return found


def errors(parsed: Parsed) -> list[Problem]:
    return [found for found in parsed.problems if found.severity is Severity.ERROR]


def test_a_misspelt_flag_is_reported_at_its_column() -> None:
    found = problem("arena submit tfjob \\\n  --name=a \\\n  --worker-cpuu=2 'python t.py'")
    assert (found.code, found.path, found.line, found.column) == ("UnknownField", "--worker-cpuu", 3, 3)
    assert found.fix == "did you mean --worker-cpu?"


def test_a_bad_value_is_reported_at_its_column() -> None:
    found = problem(START + "--workerMemory 4GB x")
    assert (found.code, found.path, found.column) == ("BadQuantity", "--workerMemory", len(START) + 16)
    assert found.fix == "write 4G"
    assert problem(START + "--gpus=-1 x").column == len(START) + len("--gpus=") + 1


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ("--workers=two", "WrongType"),
        ("--workers=99999", "OutOfRange"),
        ("--workers=0", "Required"),
        ("--env NAME", "NotAllowed"),
        ("--env =x", "BadName"),
        ("--selector 'a b=c'", "BadName"),
        ("--data claim", "NotAllowed"),
        ("--data CLAIM:/x", "BadName"),
        ("--data-dir here", "NotAllowed"),
        ("--toleration a=b:Never", "NotAllowed"),
        ("--toleration a=b:NoSchedule,Exists", "Conflict"),
        ("--device gpu=1", "BadName"),
        ("--device amd.com/gpu=x", "WrongType"),
        ("--clean-task-policy Some", "NotAllowed"),
        ("--success-policy Any", "NotAllowed"),
        ("--running-timeout soon", "BadDuration"),
        ("--gang=perhaps", "WrongType"),
        ("--shell zsh", "NotAllowed"),
        ("--sync-source x", "Required"),
        ("--sync-mode git --image i", "Required"),
        ("--sync-mode git --sync-source x", "Unsupported"),
        ("--config-file a:/b", "Unsupported"),
        ("--dry-run", "Unsupported"),
        ("--name=B", "BadName"),
        ("--min-workers 3", "Conflict"),
        ("--worker-cpu 4 --worker-cpu-limit 2", "Conflict"),
    ],
)
def test_invalid_values_are_errors(flags: str, code: str) -> None:
    assert errors(parse(START + flags + " x"))[0].code == code


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ("--scheduler=volcano", "Ignored"),
        ("--queue", "Ignored"),
        ("--priority high", "Ignored"),
        ("--gang=false", "Ignored"),
        ("--role-sequence w,p", "Ignored"),
        ("--model-name m", "Ignored"),
        ("--ps-cpu 1", "Ignored"),
        ("--chief-port 1", "Ignored"),
        ("--logdir /logs", "Ignored"),
        ("--loglevel debug", "Ignored"),
        ("--hostPID", "KubernetesOnly"),
        ("--data claim:/x", "KubernetesOnly"),
        ("--workers 1 --workers 2", "Duplicate"),
    ],
)
def test_ignored_flags_are_warnings(flags: str, code: str) -> None:
    parsed = parse(START + flags + " -- python t.py")
    assert [(found.code, found.severity) for found in parsed.problems] == [(code, Severity.WARNING)]
    assert parsed.jobs[0].warnings == parsed.problems


def test_a_missing_name_is_an_error() -> None:
    assert [(p.code, p.path) for p in parse("arena submit tf x").problems] == [("Required", "--name")]


def test_a_name_without_a_value_is_reported_once() -> None:
    assert [p.message for p in parse("arena submit tf x --name").problems] == ["--name needs a value"]


def test_roles_and_variables_are_bounded() -> None:
    images = "i," * 200
    assert "roles" in problem(f"arena submit volcanojob --name=a --task-images {images}").message
    assert len(parse('arena submit tf "' + "$A " * 50_000 + '"').problems) == 101


def test_a_missing_command_is_an_error() -> None:
    assert problem("arena submit tf --name=a").code == "NothingToRun"


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("arena", "Unsupported", "arena submits nothing"),
        ("arena list", "Unsupported", "arena list is not supported: use muster list"),
        ("arena serve tensorflow --name=x", "Unsupported", "does not serve them"),
        ("muster list", "Unsupported", "muster list submits nothing"),
        ("arena submit", "UnsupportedKind", "is missing the kind of job"),
        ("arena submit --name=a x", "UnsupportedKind", "is missing the kind of job"),
        ("arena submit tfjb --name=a", "UnsupportedKind", "tfjb is not a kind of job"),
        ("arena submit --mode=tensorflw --name=a", "NotAllowed", "--mode must be one of"),
        ("arena submit sparkjob --name=a", "Unsupported", "its own scheduler"),
        ("arena submit deepspeedjob --name=a", "Unsupported", "/job/hostfile"),
        ("arena submit tf --name=a x\nkubectl get pods", "Unsupported", "kubectl submits nothing"),
    ],
)
def test_other_arena_commands_are_rejected(command: str, code: str, words: str) -> None:
    found = problem(command)
    assert found.code == code
    assert words in found.message


def test_flags_after_the_command_are_still_flags() -> None:
    (job,) = parse(START + "'python t.py' --workers=3").jobs
    assert job.roles[0].replicas == 3
    assert job.roles[0].template.command == ("sh", "-c", "python t.py")


def test_flags_of_an_unquoted_command_are_its_own() -> None:
    parsed = parse(START + "mpirun -np 2 python t.py --steps=5 --workers 3")
    (job,) = parsed.jobs
    assert job.roles[0].template.command == ("sh", "-c", "mpirun -np 2 python t.py --steps=5")
    assert (job.namespace, job.roles[0].replicas) == ("default", 3)
    assert [(p.code, p.severity) for p in parsed.problems] == [("Misspelt", Severity.WARNING)]


def test_everything_after_two_hyphens_is_the_command() -> None:
    (job,) = parse(START + "-- python t.py --workers 3").jobs
    assert (job.roles[0].replicas, job.roles[0].template.command[-1]) == (1, "python t.py --workers 3")


def test_short_flags_and_switches_with_a_value() -> None:
    (job,) = parse(START + "-e A=1 -eB=2 -n other --gang true --evaluator=false 'x'").jobs
    assert job.namespace == "other"
    assert {**job.roles[0].template.env, "workers": "", "gpus": ""} == {
        "A": "1",
        "B": "2",
        "workers": "",
        "gpus": "",
    }
    assert len(job.roles) == 1


def test_flags_of_the_program_may_stand_before_the_sort_of_job() -> None:
    (job,) = parse("arena --namespace one submit tf --name a x").jobs
    assert job.namespace == "one"
    (job,) = parse("arena submit -n two tf --name a x").jobs
    assert job.namespace == "two"
    assert parse("arena submit tf --name a x", namespace="three").jobs[0].namespace == "three"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5h", 5400), ("2h22m", 8520), ("1500ms", 2), ("1m.5s", 61), ("0", None), ("0s", None)]
)  # fmt: skip
def test_durations_as_arena_writes_them(text: str, seconds: int | None) -> None:
    assert parse(START + f"--running-timeout={text} x").jobs[0].run.active_deadline_s == seconds


@pytest.mark.parametrize(
    ("text", "toleration"),
    [
        ("all", Toleration(operator="Exists")),
        ("gpu", Toleration(key="gpu", operator="Exists")),
        ("gpu=yes", Toleration(key="gpu", operator="Equal", value="yes")),
        ("gpu:NoExecute", Toleration(key="gpu", operator="Exists", effect="NoExecute")),
        ("gpu=yes:NoSchedule", Toleration(key="gpu", operator="Equal", value="yes", effect="NoSchedule")),
        ("gpu=:NoSchedule,Exists", Toleration(key="gpu", operator="Exists", effect="NoSchedule")),
    ],
)
def test_tolerations(text: str, toleration: Toleration) -> None:
    assert parse(START + f"--toleration {text} x").jobs[0].roles[0].template.tolerations == (toleration,)


def test_retries_restart_what_failed() -> None:
    (job,) = parse(START + "--retry 3 x").jobs
    assert (job.run.backoff_limit, job.roles[0].restart_policy) == (3, RestartPolicy.ON_FAILURE)


def test_a_variable_is_not_replaced_behind_the_users_back() -> None:
    found = errors(parse('arena submit tf --name=a --image "$IMAGE" x'))[0]
    assert (found.code, found.line, found.column, found.found) == ("Unsupported", 1, 35, "$IMAGE")


def test_yaml_that_mentions_arena_is_yaml() -> None:
    assert problem("arena: submit").code == "UnsupportedKind"


def test_a_flag_without_a_value_is_an_error() -> None:
    found = problem(START + "x --gpus")
    assert (found.code, found.path, found.message) == ("Required", "--gpus", "--gpus needs a value")


@pytest.mark.parametrize("sort", SUB_COMMANDS, ids=lambda sort: sort.names[0])
def test_every_flag_has_help_and_a_unique_name(sort: SubCommand) -> None:
    flags = set(flags_of(sort.table).values())
    assert [flag.key for flag in flags if not flag.doc] == []
    assert len(flags_of(sort.table)) == sum(len(flag.names) for flag in flags)


def test_older_spellings_are_read_as_todays() -> None:
    flags = flags_of(TensorFlowFlags)
    for older, name in {
        "--workerCpu": "--worker-cpu",
        "--psImage": "--ps-image",
        "--ChiefCpu": "--chief-cpu",
        "--dataDir": "--data-dir",
    }.items():
        assert flags[older] is flags[name]
