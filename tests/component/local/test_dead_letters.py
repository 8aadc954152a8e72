import asyncio
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner, Result

from muster_bus import Bus, BusSettings, DeadLetters, Incoming
from muster_events.catalogue import DEAD_STREAM
from muster_events.subjects import DEAD_PREFIX
from muster_local.dead_letters import dead_letters
from muster_local.system import LocalSystem


async def ask(data: Path, *arguments: str) -> Result:
    return await run("--data", str(data), *arguments)


async def run(*command: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, dead_letters, command)


async def dead_letter_event(url: str, sequence: int) -> None:
    bus = await Bus.connect(BusSettings(url=url), name="test")
    dead_letter = Incoming(
        subject="muster.v1.job.3.j-1.JobSubmitted",
        data=b'{"name":"demo"}',
        headers={"Nats-Msg-Id": f"j-1/{sequence}"},
        stream="JOBS",
        stream_sequence=sequence,
    )
    await DeadLetters(bus, stream=DEAD_STREAM, prefix=DEAD_PREFIX).put(
        dead_letter, "spec-validator", "ValueError: no"
    )
    await bus.close()


async def test_dead_letters_are_listed_shown_and_discarded(
    tmp_path: Path, fake_command: Callable[[str], tuple[str, ...]]
) -> None:
    async with LocalSystem(tmp_path, command=fake_command) as system:
        assert (await ask(tmp_path, "list")).output == "There are no dead letters.\n"
        await dead_letter_event(system.bus_url, 7)
        await dead_letter_event(system.bus_url, 8)

        listed = (await ask(tmp_path, "list")).output.splitlines()
        assert listed[0].split() == ["N", "FAILED", "AT", "CONSUMER", "MESSAGE", "REASON"]
        assert [row.split()[0] for row in listed[1:]] == ["1", "2"]
        assert all("spec-validator" in row and "ValueError: no" in row for row in listed[1:])

        behind = await run("list", "--data", str(tmp_path))
        assert behind.output.splitlines() == listed
        by_bus = await run("--data", "elsewhere", "list", "--bus", system.bus_url)
        assert by_bus.output.splitlines() == listed

        shown = (await ask(tmp_path, "show", "1")).output
        assert "JOBS 7" in shown
        assert "Nats-Msg-Id  j-1/7" in shown
        assert '"name": "demo"' in shown

        assert "Discarded dead letter 1" in (await ask(tmp_path, "discard", "1")).output
        again = await ask(tmp_path, "discard", "1")
        assert (again.exit_code, again.output) == (1, "Error: there is no dead letter 1\n")
        assert "there is no dead letter 9" in (await ask(tmp_path, "show", "9")).output
        assert "there is no dead letter 9" in (await ask(tmp_path, "replay", "9")).output

        unread = await ask(tmp_path, "replay", "2")
        assert unread.exit_code == 1
        assert "the service that consumes the event may not be running" in unread.output
        assert len((await ask(tmp_path, "list")).output.splitlines()) == 2


async def test_without_a_running_system_the_message_has_a_hint(tmp_path: Path) -> None:
    result = await ask(tmp_path, "list")
    assert result.exit_code == 1
    assert "start it, or name a broker with --bus" in result.output
