"""A fraction of a GPU takes one part of a GPU that the device plugin shares."""

from __future__ import annotations

from functools import partial

import pytest

from muster_core.models import Job, Resources, Severity
from muster_formats import kubernetes_limits
from muster_spec_validator.defaults import NONE_APPLIED
from muster_spec_validator.validation import Rules, read_document

FOUR = Rules(limits=partial(kubernetes_limits, gpu_shares=4), gpu_shares=4)
UNSHARED = Rules(limits=kubernetes_limits)
SHARED = "nvidia.com/gpu.shared"


def document(requests: str, *, overrides: str = "") -> str:
    return f"""
apiVersion: muster.dev/v1
kind: Job
metadata: {{name: demo}}
spec:
  roles:
    worker:
      replicas: 2
      image: train:1
      command: [train]
      resources: {{requests: {{{requests}}}}}
      {overrides}
"""


def read(text: str, rules: Rules) -> tuple[list[Job], list[tuple[Severity, str]]]:
    parsed = read_document(text, "", "", NONE_APPLIED, rules=rules)
    return list(parsed.jobs), [(each.severity, each.message) for each in parsed.problems]


@pytest.mark.parametrize("gpu", ["250m", "100m"])
def test_a_fraction_takes_one_part(gpu: str) -> None:
    [job], problems = read(document(f"cpu: 1, gpu: {gpu}"), FOUR)
    template = job.roles[0].template
    assert problems == []
    assert template.requests == Resources(cpu=1000, extended={SHARED: 1})


def test_whole_gpus_and_none_stay_as_they_are() -> None:
    for gpu, expected in (("gpu: 2", 2000), ("cpu: 1", 0)):
        [job], problems = read(document(gpu), FOUR)
        assert (job.roles[0].template.requests.gpu, problems) == (expected, [])
        assert job.roles[0].template.requests.extended == {}


def test_more_than_a_part_is_refused() -> None:
    jobs, [(severity, message)] = read(document("gpu: 500m"), FOUR)
    assert (jobs, severity) == ([], Severity.ERROR)
    assert message == "GPUs are shared in 4 parts, and a replica can have one of them"


def test_memory_of_a_shared_gpu_is_not_limited() -> None:
    [job], problems = read(document("gpu: 250m, gpuMemory: 3Gi"), FOUR)
    assert problems == [(Severity.WARNING, "the memory of a shared GPU is not limited")]
    assert job.roles[0].template.requests == Resources(extended={SHARED: 1})


def test_without_sharing_a_fraction_is_refused() -> None:
    jobs, [(_, message)] = read(document("gpu: 250m"), UNSHARED)
    assert (jobs, message) == ([], "Kubernetes cannot share a GPU")
