"""The demo: from an empty machine to the trace of a finished training job, with the commands that a user would type.

It starts Muster on two virtual nodes, submits the digits example, follows it while it grows from 2 to 4 workers, and
shows the result and its trace. The exit code is 0 only if all of that happened.

Usage: ``python examples/demo.py [--keep]`` from the root of the checkout (``make demo``).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MUSTER = Path(sys.executable).parent / "muster"
SERVICES = {"gateway", "spec-validator", "scheduler", "pod-launcher", "scaler", "status-tracker"}
IDLE_PERIOD = "5s"
READY_S = 60
JOB_S = 180


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="keep the data folder for inspection")
    keep = parser.parse_args().keep
    data = Path(tempfile.mkdtemp(prefix="muster-demo-"))
    try:
        return demonstrate(data)
    finally:
        if keep:
            say(f"the data folder is {data}")
        else:
            shutil.rmtree(data, ignore_errors=True)


def demonstrate(data: Path) -> int:
    """Start Muster, run the job, show it, stop Muster."""
    command = [MUSTER, "up", "--data", data, "--port", "0", "--idle-period", IDLE_PERIOD]
    command += ["--node", "n1:cpu=2,memory=4Gi", "--node", "n2:cpu=2,memory=4Gi"]
    shown(command)
    log = data / "up.log"
    with log.open("wb") as output:
        # In a session of its own: Ctrl-C in the terminal ends the demo, and the demo ends Muster.
        up = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
    try:
        address = wait_until_ready(up, data / "endpoints.json", log)
        os.environ["MUSTER_SERVER"] = address
        return run_demo()
    finally:
        up.send_signal(signal.SIGINT)
        try:
            up.wait(30)
        except subprocess.TimeoutExpired:
            up.kill()


def wait_until_ready(up: subprocess.Popen[bytes], endpoints: Path, log: Path) -> str:
    """Return the gateway's address when everything is ready."""
    began = time.monotonic()
    while time.monotonic() - began < READY_S:
        if up.poll() is not None:
            break
        if endpoints.exists():
            say(f"ready after {time.monotonic() - began:.1f} s: the broker and six services")
            return str(json.loads(endpoints.read_text())["gateway"])
        time.sleep(0.05)
    sys.stderr.write(log.read_text(errors="replace"))
    raise SystemExit("Muster did not start")


def run_demo() -> int:
    """Submit, follow and show the job; returns the exit code."""
    code = run("submit", "-f", "examples/digits/tfjob.yaml", "--follow", timeout=JOB_S)
    run("get", "digits")
    run("trace", "digits")
    problems = check(code)
    for problem in problems:
        say(f"FAILED: {problem}")
    if not problems:
        say("the job succeeded, grew from 2 to 4 workers, and one trace covers its whole life")
    return 1 if problems else 0


def check(code: int) -> list[str]:
    """Yield everything that did not go as expected."""
    job = json.loads(captured("get", "digits"))
    resources = json.loads(captured("trace", "digits"))["result"]["resourceSpans"]
    services = {
        attribute["value"]["stringValue"]
        for resource in resources
        for attribute in resource["resource"]["attributes"]
        if attribute["key"] == "service.name"
    }
    spans = [span for resource in resources for scope in resource["scopeSpans"] for span in scope["spans"]]
    ids = {span["spanId"] for span in spans}
    roots = [span["name"] for span in spans if span.get("parentSpanId", "") not in ids]
    grown = [
        entry["message"]
        for entry in job["status"]["history"]
        if entry["event"] == "JOB_EVENT_TYPE_JOB_RESIZED"
    ]
    logs = subprocess.run(
        [MUSTER, "logs", "digits"], cwd=ROOT, timeout=60, check=True, capture_output=True, text=True
    ).stdout
    problems = [f"muster submit --follow ended with exit code {code}"] if code else []
    if job["status"]["phase"] != "PHASE_SUCCEEDED":
        problems.append(f"the job is {job['status']['phase']}")
    if not any("from 2 to 4" in message for message in grown):
        problems.append("the job did not grow from 2 to 4 workers")
    if "final test accuracy" not in logs:
        problems.append("no worker printed its accuracy")
    if services != SERVICES:
        problems.append(f"the trace has no spans of {', '.join(sorted(SERVICES - services))}")
    if roots != ["SubmitJob"]:
        problems.append(f"the trace is not a single tree: its roots are {', '.join(roots)}")
    return problems


def run(*arguments: str, timeout: float = 60) -> int:
    """Run a command as a user would, and print it."""
    shown(["muster", *arguments])
    return subprocess.run([MUSTER, *arguments], cwd=ROOT, timeout=timeout, check=False).returncode


def captured(*arguments: str) -> str:
    """Return the JSON output of a command."""
    answer = subprocess.run(
        [MUSTER, "-o", "json", *arguments],
        cwd=ROOT,
        timeout=60,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return answer.stdout


def shown(command: list[str | Path]) -> None:
    """Print a command as a user would type it."""
    words = [Path(word).name if word == MUSTER else str(word) for word in command]
    print(
        f"\n\033[1m$ {' '.join(words)}\033[0m" if sys.stdout.isatty() else f"\n$ {' '.join(words)}",
        flush=True,
    )


def say(text: str) -> None:
    """Print a line of the demo itself."""
    print(f"== {text}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
