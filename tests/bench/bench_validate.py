"""CPU time of `muster validate` for a document of two hundred lines, without its start-up."""

import asyncio
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from measuring import Measurement
from system_under_test import fresh_folder

LINES = 200
NAMES = (f"validate_cpu_ms.{LINES}",)

_COMMAND = str(Path(sys.executable).with_name("muster"))


class NotAnswered(Exception):
    """The command gave an unexpected answer."""


async def measure(root: Path, *, quick: bool) -> list[Measurement]:
    """Return the median of several runs minus that of a bare start; imports of the validation count."""
    with fresh_folder(root) as folder:
        file = folder / "tfjob.yaml"
        good = document()
        times = 3 if quick else 9
        file.write_text(good)
        sound = await asyncio.to_thread(_median_ms, ("validate", str(file)), 0, times)
        file.write_text(good.replace("image: trainer", "imagee: trainer"))
        broken = await asyncio.to_thread(_median_ms, ("validate", str(file)), 3, times)
    start = await asyncio.to_thread(_median_ms, ("--version",), 0, times)
    note = f"a TFJob, good; with an error {broken - start:.0f} ms; `muster --version` alone {start:.0f} ms"
    return [Measurement(name=NAMES[0], value=sound - start, unit="ms", budget=300, note=note)]


def document() -> str:
    """Return a TFJob of LINES lines, most of them variables."""
    head = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: large
spec:
  runPolicy:
    cleanPodPolicy: All
    backoffLimit: 2
  tfReplicaSpecs:
"""
    role = """\
    {role}:
      replicas: {count}
      restartPolicy: OnFailure
      template:
        spec:
          containers:
          - name: tensorflow
            image: trainer:1
            command: [python, train.py]
            resources:
              limits:
                cpu: "2"
                memory: 4Gi
            env:
"""
    roles = (("PS", 2), ("Worker", 4), ("Chief", 1))
    spare = LINES - head.count("\n") - len(roles) * role.count("\n")
    texts = [head]
    for position, (name, count) in enumerate(roles):
        texts.append(role.format(role=name, count=count))
        tell = spare // 2 // len(roles) if position else spare // 2 - 2 * (spare // 2 // len(roles))
        texts += [f'            - name: SETTING_{n}\n              value: "{n}"\n' for n in range(tell)]
    return "".join(texts) + "# the end\n" * (spare % 2)


def _median_ms(arguments: Sequence[str], due: int, times: int) -> float:
    return statistics.median(_cpu_ms(arguments, due) for _ in range(times))


def _cpu_ms(arguments: Sequence[str], due: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([_COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != due:
        raise NotAnswered(f"exit code {done.returncode} instead of {due}: {done.stderr}")
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000
