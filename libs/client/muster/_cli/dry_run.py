"""``--dry-run``: show what would be submitted."""

from __future__ import annotations

import json

import click

from muster._cli.documents import Given
from muster._cli.findings import Finding, ask, find, show_problems
from muster._cli.problems import counted
from muster._cli.state import State
from muster.errors import Unavailable
from muster_core.models import Job, Template
from muster_formats.native import native_text, to_native

SERVER, CLIENT, EITHER = "server", "client", "auto"
"""Who validates a dry run: the server, this command, or the server if it is reachable."""


def dry_run(state: State, given: Given, whom: str) -> Finding:
    """Print what would be submitted: native documents, or a summary."""
    finding = _find(state, given, whom)
    show_problems(state, finding)
    if finding.refused:
        state.err.print(f"muster: {given.name} is refused: {counted(finding.problems)}", soft_wrap=True)
        return finding
    match state.output:
        case "yaml":
            click.echo("---\n".join(native_text(job) for job in finding.jobs), nl=False)
        case "json":
            native = [to_native(job) for job in finding.jobs]
            click.echo(json.dumps(native[0] if len(native) == 1 else native, indent=2))
        case "name":
            for job in finding.jobs:
                click.echo(job.name)
        case _:
            click.echo("\n".join(_summary(job) for job in finding.jobs))
    return finding


def _find(state: State, given: Given, whom: str) -> Finding:
    if whom == CLIENT:
        return find(given, state.namespace)
    try:
        with state.client() as client:
            return ask(client, given)
    except Unavailable as error:
        if whom == SERVER:
            raise
        state.note(f"{error}; shown without the platform defaults")
        return find(given, state.namespace)


def _summary(job: Job) -> str:
    lines = [
        ("Name", f"{job.name} in {job.namespace}"),
        ("Kind", f"{job.kind.value}, {job.framework.value} ({job.format})"),
        ("Queue", job.queue or "(the namespace's queue)"),
    ]
    for role in job.roles:
        bounds = f" ({role.min} to {role.max})" if role.min != role.max else ""
        lines.append((role.name, f"{role.replicas}{bounds} of {_replica(role.template)}"))
    if job.built_by:
        lines.append(("After", job.built_by))
    if job.defaults:
        filled = ", ".join(job.defaults.fields) or "no defaults apply"
        lines.append(("Defaults", f"{job.defaults.category.value}, version {job.defaults.version}: {filled}"))
    width = max(len(label) for label, _ in lines) + 2
    return "".join(f"{label + ':':<{width}}{value}\n" for label, value in lines) + "not submitted"


def _replica(template: Template) -> str:
    runs = template.image or " ".join((*template.command, *template.args))
    asked = ", ".join(f"{name} {amount}" for name, amount in _amounts(template).items())
    return f"{runs} with {asked}" if asked else runs


def _amounts(template: Template) -> dict[str, str]:
    from muster_core.quantities import format_bytes, format_cpu, format_gpu  # noqa: PLC0415 (only here)

    resources = template.requests
    named = {
        "cpu": format_cpu(resources.cpu) if resources.cpu else "",
        "memory": format_bytes(resources.memory) if resources.memory else "",
        "gpu": format_gpu(resources.gpu) if resources.gpu else "",
        **{name: str(amount) for name, amount in resources.extended.items()},
    }
    return {name: amount for name, amount in named.items() if amount}
