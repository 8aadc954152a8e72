"""Arena's command lines, submitted through the API and typed as `muster submit`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from harness import Connect, Launcher, output_of

from muster_rpc.v1 import job_pb2

COMMANDS = """# two jobs of one script
arena submit tf --name=pair --workers=2 --worker-cpu=100m --namespace=default \\
    'test "$workers" = 2 && test -n "$TF_CONFIG"'
arena submit --mode=standalone --name=alone --cpu=100m --env GREETING='good day' 'echo "$GREETING"'
"""


async def test_a_script_of_commands_becomes_several_jobs(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        submitted = await muster.submit(COMMANDS, source_name="jobs.sh")
        assert [job.name for job in submitted] == ["pair", "alone"]
        for job in submitted:
            assert (await muster.wait(job.job_id)).status.phase == job_pb2.PHASE_SUCCEEDED
        assert await output_of(muster, "alone") == "good day\n"


async def test_a_typed_command_line_is_submitted_and_followed(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        words = ("tfjob", "--name=typed", "--worker-cpu", "100m", "--follow", 'echo "it ran in $MUSTER_ROLE"')
        command = await asyncio.create_subprocess_exec(
            Path(sys.executable).parent / "muster",
            "submit",
            *words,
            env={**os.environ, "MUSTER_SERVER": muster.address},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await asyncio.wait_for(command.communicate(), 60)
        assert command.returncode == 0
        assert "[worker-0] it ran in worker" in output.decode()
        assert (await muster.get("typed")).spec.format == "arena"
