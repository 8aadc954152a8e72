"""Jobs, replicas and addresses for tests of environments."""

from __future__ import annotations

import msgspec
import pytest

from muster_core.frameworks import Addresses, RuntimeContext, environment, local_addresses, possible_replicas
from muster_core.models import Framework, Job, JobRecord, Phase, ReplicaRecord, ReplicaState, Role, Template


class GangBuilder:
    """A job (TensorFlow by default), its record and its replicas."""

    def job(self, *roles: tuple[str, int, int], **rest: object) -> Job:
        """Roles as (name, replicas, maximum), elastic from 1 if the two differ; ``rest`` are fields of the job."""
        built = tuple(
            Role(
                name=name,
                replicas=replicas,
                min=replicas if replicas == most else 1,
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
            job_id="j-1", applied_sequence=9, phase=Phase.RUNNING, attempt=2, generation=4, replicas=replicas
        )

    def addresses(self, job: Job) -> Addresses:
        """Return ``role-index:2222`` for every possible replica."""
        return {(role, index): f"{role}-{index}:2222" for role, index in possible_replicas(job)}

    def ports(self, job: Job) -> Addresses:
        """Return ``127.0.0.1:21000`` and up, as on one machine."""
        keys = possible_replicas(job)
        return local_addresses("127.0.0.1", {key: 21000 + number for number, key in enumerate(keys)})

    def context(self, job: Job, addresses: Addresses | None = None, **rest: object) -> RuntimeContext:
        """Return the runtime context of the job."""
        built = RuntimeContext(
            addresses=self.addresses(job) if addresses is None else addresses,
            members_path="/run/members.json",
            config_folder="/etc/mpi",
        )
        return msgspec.structs.replace(built, **rest)

    def gang(self, job: Job) -> JobRecord:
        """Return the record of the whole gang."""
        members = (self.replica(role.name, index) for role in job.roles for index in range(role.replicas))
        return self.record(*members)

    def variables(
        self, job: Job, role: str, index: int, context: RuntimeContext | None = None
    ) -> dict[str, str]:
        """Return the framework's variables of a replica of the whole gang, without MUSTER_*, TRACEPARENT and OWN."""
        env = environment(
            self.gang(job),
            job,
            self.replica(role, index),
            context=context or self.context(job),
            traceparent="00-a-b-01",
        )
        everyones = ("MUSTER_", "TRACEPARENT", "OWN")
        return {name: value for name, value in env.items() if not name.startswith(everyones)}


@pytest.fixture
def gang() -> GangBuilder:
    """Builds jobs and replicas."""
    return GangBuilder()
