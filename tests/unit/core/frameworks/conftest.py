"""Jobs, replicas and addresses for what replicas are told."""

from __future__ import annotations

import msgspec
import pytest

from muster_core.frameworks import Addresses, listed_replicas
from muster_core.models import Framework, Job, JobRecord, Phase, ReplicaRecord, ReplicaState, Role, Template


class Scene:
    """A TensorFlow job, its record and its replicas."""

    def job(self, *roles: tuple[str, int, int], **rest: object) -> Job:
        """Roles as (name, replicas, maximum); ``rest`` are fields of the job."""
        built = tuple(
            Role(
                name=name,
                replicas=replicas,
                min=1,
                max=most,
                template=Template(env={"OWN": name}),
            )
            for name, replicas, most in roles
        )
        return msgspec.structs.replace(Job(name="demo", roles=built, framework=Framework.TENSORFLOW), **rest)

    def replica(self, role: str, index: int, **rest: object) -> ReplicaRecord:
        """A running replica of attempt 2, generation 3."""
        replica = ReplicaRecord(
            role=role, index=index, attempt=2, generation=3, node="n1", state=ReplicaState.RUNNING
        )
        return msgspec.structs.replace(replica, **rest)

    def record(self, *replicas: ReplicaRecord) -> JobRecord:
        """A running job in attempt 2, generation 4."""
        return JobRecord(
            job_id="j-1", folded=9, phase=Phase.RUNNING, attempt=2, generation=4, replicas=replicas
        )

    def addresses(self, job: Job) -> Addresses:
        """``role-index:2222`` for everyone who may ever run."""
        return {(role, index): f"{role}-{index}:2222" for role, index in listed_replicas(job)}


@pytest.fixture
def scene() -> Scene:
    """The maker of jobs and replicas."""
    return Scene()
