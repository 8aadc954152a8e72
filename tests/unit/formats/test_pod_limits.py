"""What no pod can be made of is refused at its line where replicas are pods, and nowhere else."""

from __future__ import annotations

import pytest

from muster_core.models import Severity
from muster_formats import kubernetes_limits, read_document

JOB = """
apiVersion: muster.dev/v1
kind: Job
metadata: {name: demo}
spec:
  roles:
    worker:
      %s
      command: [train]
      resources: {gpu: %s}
"""
BUILT = """
version: 1
kind: experiment
build: {image: base, build_steps: [pip install x]}
run: {cmd: train}
"""


def errors(document: str) -> list[tuple[int, str]]:
    parsed = read_document(document, source_name="demo.yaml", limits=kubernetes_limits)
    return [(one.line, one.message) for one in parsed.problems if one.severity is Severity.ERROR]


def test_what_can_be_a_pod_is_not_refused():
    assert errors(JOB % ("image: train:1", "2")) == []


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (JOB % ("", "1"), (9, "worker has no image, which Kubernetes requires")),
        (JOB % ("image: train:1", "500m"), (10, "Kubernetes cannot share a GPU")),
        (BUILT, (4, "Kubernetes cannot build images")),
    ],
)
def test_what_cannot_is_refused_at_its_line_and_runs_as_processes(document: str, expected: tuple[int, str]):
    assert errors(document) == [expected]
    assert read_document(document, source_name="demo.yaml").jobs
