"""An Arena command line as a document: ``arena submit tfjob --name=... "python train.py"``, or the same after
``muster submit``.

The older form with ``--mode=tensorflow|horovod|mpi|standalone`` and camel-case flags is supported.
``--tensorboard`` adds a second job, a service. Only ``submit`` is supported; other Arena commands are
rejected with the Muster command to use instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from muster_core.models import Job
from muster_core.models.problem_codes import Code
from muster_formats.arena import PROGRAMS
from muster_formats.arena.command_line import ArenaCommand, flags_of, read_flags, skip_globals
from muster_formats.arena.flags import CommonFlags, GlobalFlags
from muster_formats.arena.jobs import SUB_COMMANDS, SubCommand, board_of
from muster_formats.arena.replicas import NAME
from muster_formats.cursor import Cursor, nearest
from muster_formats.locations import FieldLocations, JobField
from muster_formats.problems import Problems, SourceLocation, shown
from muster_formats.registry import Format, ReadContext
from muster_formats.rules import apply_rules
from muster_formats.shell_words import Word

_SUBMIT = "submit"
_MODES = {
    "tensorflow": "tfjob",
    "tf": "tfjob",
    "horovod": "horovodjob",
    "mpi": "mpijob",
    "standalone": "standalonejob",
}
_UNSUPPORTED_COMMANDS = {
    "serve": "Muster trains models and does not serve them",
    "evaluate": "Muster has no model registry; submit the evaluation as a job",
    "model": "Muster has no model registry",
    "cron": "Muster has no cron jobs; submit the job from a scheduler of your own",
    "data": "volumes belong to the cluster; mount one with --data",
    "scalein": "use muster scale to shrink a job",
    "scaleout": "use muster scale to grow a job",
    "delete": "use muster delete",
    "get": "use muster get",
    "list": "use muster list",
    "logs": "use muster logs",
    "logviewer": "muster logs shows the output of replicas",
    "top": "use muster top",
    "prune": "--ttl-after-finished removes ended jobs",
    "attach": "muster logs -f follows the output of replicas",
    "completion": "it belongs to the shell",
    "version": "use muster version",
    "whoami": "it submits nothing",
}
_UNSUPPORTED_SUB_COMMANDS = {
    "deepspeedjob": ("deepspeed", "dp", "its launcher reads /job/hostfile; submit an mpijob with --hostfile=/etc/mpi/hostfile"),
    "rayjob": ("ray", "rj", "Ray has its own scheduler"),
    "sparkjob": ("spark", "sj", "Spark has its own scheduler"),
    "tfserving": ("tfserving", "tfs", "Muster trains models and does not serve them"),
}  # fmt: skip


def read_arena(cursor: Cursor, given: ReadContext) -> tuple[Job, ...]:
    """Read one command; see ``Read``. The cursor's node is a list of words."""
    words = cast("list[Word]", cursor.node.value)
    problems = cursor.problems
    if words[0].text not in PROGRAMS:
        _report_verb(words[0], None, problems)
        return ()
    before, words_after = skip_globals(words[1:])
    program, verb = words[0], words_after[0] if words_after else None
    if verb is None or verb.text != _SUBMIT:
        _report_verb(program, verb, problems)
        return ()
    submit_globals, rest = skip_globals(words_after[1:])
    sub_command, rest = _sub_command_of(verb, rest, [*submit_globals], problems)
    if sub_command is None:
        return ()
    args = ArenaCommand(cursor.location, problems, sub_command.words)
    read_flags(args, [*before, *submit_globals, *rest], sub_command.table)
    return _jobs(args, sub_command, given)


FORMAT = Format(name=NAME, version=NAME, kind=_SUBMIT, read=read_arena, version_key="")
"""The format of command lines, recognised by their first word."""


def split_own(words: Sequence[str], own: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """Split the words after ``submit`` into a program's ``own`` options (name -> whether a value follows) and
    the rest.

    Words after the start of an unquoted command, or after ``--``, belong to the command.
    """
    flags = {name: flag for sub_command in SUB_COMMANDS for name, flag in flags_of(sub_command.table).items()}
    sub_command_names = {name for sub_command in SUB_COMMANDS for name in sub_command.names}
    mine: list[str] = []
    others: list[str] = []
    command_started = False
    at = 0
    while at < len(words):
        word = words[at]
        name, sign, _ = word.partition("=")
        flag = flags.get(name)
        end = at + 1
        if name in own:
            end += int(own[name] and not sign)
            mine += words[at:end]
        elif word.startswith("-") and word != "--":
            command_started = command_started or name == GlobalFlags.mode.key
            end += int(flag is not None and flag.takes_value and not sign)
            others += words[at:end]
        elif word != "--" and (
            any(one.isspace() for one in word)
            or (not command_started and word in {*PROGRAMS, _SUBMIT, *sub_command_names})
        ):
            command_started = command_started or word in sub_command_names
            others.append(word)
        else:
            return mine, [*others, *words[at:]]
        at = end
    return mine, others


def _jobs(args: ArenaCommand, sub_command: SubCommand, given: ReadContext) -> tuple[Job, ...]:
    locations = FieldLocations(args.location)
    locations.record(JobField("name"), args.missing_location("--name"))
    if cursor := next(iter(args.flags.get("--name", [])), None):
        locations.record(JobField("name"), cursor.location)
    locations.record(JobField("queue"), args.location_of(CommonFlags.queue), CommonFlags.queue.key)
    job = sub_command.read(args, given, locations)
    apply_rules(job, locations, args.problems, given.limits)
    board = board_of(args, job)
    if board:
        apply_rules(board, locations, args.problems, given.limits)
    return (job, board) if board else (job,)


def _sub_command_of(
    verb: Word, rest: list[Word], submit_globals: list[Word], problems: Problems
) -> tuple[SubCommand | None, list[Word]]:
    """Return the sub-command and the words after it."""
    named = {name: sub_command for sub_command in SUB_COMMANDS for name in sub_command.names}
    first = rest[0] if rest else None
    if first and first.text in named:
        return named[first.text], rest[1:]
    words = [*submit_globals, *rest]
    for at, word in enumerate(words):
        name, sign, value = word.text.partition("=")
        if name == GlobalFlags.mode.key:
            mode = value if sign else (words[at + 1].text if at + 1 < len(words) else "")
            if mode in _MODES:
                return named[_MODES[mode]], rest
            _report_mode(word, mode, problems)
            return None, rest
    _report_sub_command(verb, first, problems)
    return None, rest


def _report_mode(word: Word, mode: str, problems: Problems) -> None:
    near = nearest(mode, _MODES)
    problems.add(
        Code.NOT_ALLOWED,
        SourceLocation(path=GlobalFlags.mode.key, line=word.line, column=word.column),
        f"{GlobalFlags.mode.key} must be one of {', '.join(_MODES)}",
        found=shown(mode),
        allowed=", ".join(_MODES),
        fix=f"did you mean {near}?" if near else "",
    )


def _report_sub_command(verb: Word, first: Word | None, problems: Problems) -> None:
    names = [sub_command.names[0] for sub_command in SUB_COMMANDS]
    at = verb if first is None or first.text.startswith("-") else first
    location = SourceLocation(path=_SUBMIT, line=at.line, column=at.column)
    allowed = ", ".join(names)
    given = at.text if at is not verb else ""
    for name, (*others, why) in _UNSUPPORTED_SUB_COMMANDS.items():
        if given in (name, *others):
            message = f"arena submit {given} is not supported: {why}"
            problems.add(
                Code.UNSUPPORTED,
                location,
                message,
                found=given,
                allowed=allowed,
                fix=f"submit one of {allowed}",
            )
            return
    near = (
        nearest(given, [name for sub_command in SUB_COMMANDS for name in sub_command.names]) if given else ""
    )
    message = f"{shown(given)} is not a kind of job" if given else f"{_SUBMIT} is missing the kind of job"
    fix = f"did you mean {near}?" if near else f"write {_SUBMIT} {names[0]}, or another kind"
    problems.add(Code.UNSUPPORTED_KIND, location, message, found=given, allowed=allowed, fix=fix)


def _report_verb(program: Word, verb: Word | None, problems: Problems) -> None:
    at = verb or program
    location = SourceLocation(path=program.text, line=at.line, column=at.column)
    given = f"{program.text} {verb.text}" if verb else program.text
    why = _UNSUPPORTED_COMMANDS.get(verb.text, "") if verb and program.text == NAME else ""
    message = f"{shown(given)} is not supported: {why}" if why else f"{shown(given)} submits nothing"
    fix = "" if why else f"write {NAME} {_SUBMIT} tfjob --name=..."
    problems.add(
        Code.UNSUPPORTED, location, message, found=shown(given), allowed=f"{NAME} {_SUBMIT}", fix=fix
    )
