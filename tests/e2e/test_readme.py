"""Commands, links and examples of the README and the pages are valid."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from pathlib import Path
from urllib.parse import unquote

import click
import pytest
from harness import ROOT, Launcher

from muster._cli.app import app

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
CLIENT = ROOT / "examples/clients/submit_and_watch.py"
CLIENT_S = 60


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def shell_lines(page: Path) -> list[list[str]]:
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    return [arguments for line in lines if (arguments := shlex.split(line, comments=True))]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shell_expanded(argument: str, home: Path) -> str:
    """Return the argument as a shell passes it on, after creating the file that it names in the home directory."""
    if not argument.startswith("~/"):
        return argument
    path = home / argument.removeprefix("~/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return str(path)


def parse(arguments: list[str]) -> None:
    """Parse a command line without running it; raises the error, if any."""
    command: click.Command = app
    context: click.Context | None = None
    while True:
        context = command.make_context(command.name, list(arguments), parent=context)
        if not isinstance(command, click.Group):
            return
        _, found, arguments = command.resolve_command(context, [*context._protected_args, *context.args])  # pyright: ignore[reportPrivateUsage]
        assert found is not None
        command = found


def test_the_api_page_contains_the_example_client() -> None:
    assert blocks(ROOT / "docs/api.md", "python") == [CLIENT.read_text()]


def test_the_example_client_imports_nothing_of_this_repository() -> None:
    assert not re.findall(r"^(?:from|import) muster", CLIENT.read_text(), re.MULTILINE)


async def test_the_example_client_watches_a_job_to_its_end(launch: Launcher) -> None:
    async with launch() as system:
        client = await asyncio.create_subprocess_exec(
            sys.executable,
            str(CLIENT),
            system.address,
            "examples/hello/hello.yaml",
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(CLIENT_S):
                output, errors = await client.communicate()
        finally:
            if client.returncode is None:
                client.kill()
                await client.wait()
    assert client.returncode == 0, errors.decode()
    assert output.decode().splitlines()[-1].startswith("hello PHASE_SUCCEEDED ")


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_command_line_can_be_parsed(page: Path, tmp_path: Path) -> None:
    for arguments in shell_lines(page):
        match arguments:
            case ["muster", *arguments]:
                parse([shell_expanded(argument, tmp_path) for argument in arguments])
            case ["make", target, *_]:
                assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
            case ["python", "-m", module, "--help"]:
                assert list(ROOT.glob(f"services/*/{module}/__main__.py")), module
            case ["python", script, *_]:
                assert (ROOT / script).is_file(), script
            case _:
                assert arguments[0] in {
                    "cp",
                    "curl",
                    "docker",
                    "env",
                    "kubectl",
                    "mmdebstrap",
                    "mv",
                    "source",
                }, arguments


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_command_in_the_text_exists(page: Path) -> None:
    known = set(app.list_commands(click.Context(app)))
    known |= {option for parameter in app.params for option in parameter.opts}
    for code in re.findall(r"`([^`]+)`", " ".join(prose(page).split())):
        match code.split():
            case ["muster", command, *_] if command.islower():
                assert command in known, code
            case ["make", target, *_]:
                assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), code
            case _:
                pass


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_link_has_a_target(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there), target
