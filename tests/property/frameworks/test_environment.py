"""Properties of the environment of replicas, over frameworks, roles and sizes."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given, strategies as st

from muster_core.frameworks import (
    Addresses,
    RuntimeContext,
    environment,
    files,
    local_addresses,
    possible_replicas,
    service_addresses,
)
from muster_core.models import (
    Convention,
    Framework,
    FrameworkOptions,
    Job,
    JobRecord,
    ReplicaRecord,
    ReplicaState,
    Role,
    Template,
)

ROLES = {
    Framework.PLAIN: ("reader", "worker"),
    Framework.TENSORFLOW: ("chief", "ps", "worker", "evaluator"),
    Framework.PYTORCH: ("master", "worker"),
    Framework.MPI: ("launcher", "worker"),
    Framework.HOROVOD: ("launcher", "worker"),
    Framework.XGBOOST: ("master", "worker"),
    Framework.PADDLE: ("master", "worker"),
    Framework.JAX: ("worker",),
    Framework.MXNET: ("scheduler", "server", "worker"),
}
ELASTIC = (Framework.PLAIN, Framework.TENSORFLOW, Framework.PYTORCH, Framework.HOROVOD, Framework.PADDLE)
RANKS = {
    Framework.PYTORCH: ("RANK", "WORLD_SIZE"),
    Framework.XGBOOST: ("RANK", "WORLD_SIZE"),
    Framework.JAX: ("PROCESS_ID", "NUM_PROCESSES"),
}


@st.composite
def jobs(
    draw: st.DrawFn, frameworks: tuple[Framework, ...] = tuple(Framework), *, grows: bool = False
) -> Job:
    """Return a job of any framework; one that ``grows`` may have one more worker."""
    framework = draw(st.sampled_from(frameworks))
    roles: list[Role] = []
    for name in ROLES[framework]:
        leads = name not in {"worker", "ps", "server", "reader"}
        count = 1 if leads else draw(st.integers(1, 4))
        low, most = (1, count + draw(st.integers(1, 3))) if grows and name == "worker" else (count, count)
        template = Template(command=("true",), env={"OWN": "value"})
        roles.append(Role(name=name, replicas=count, min=low, max=most, template=template))
    options = FrameworkOptions(
        conventions=draw(st.sampled_from([(), (Convention.POLYAXON,)])),
        parameters=draw(st.sampled_from([{}, {"lr": 0.1, "text": "ü"}])),
        processes=draw(st.sampled_from(["", "2"])),
        sparse_cluster=draw(st.booleans()),
        evaluator_in_cluster=draw(st.booleans()),
    )
    return Job(name="demo", roles=tuple(roles), framework=framework, options=options)


def addresses_of(job: Job, *, local: bool) -> Addresses:
    ports = {key: 21000 + number for number, key in enumerate(possible_replicas(job))}
    return local_addresses("127.0.0.1", ports) if local else service_addresses(job)


def record_of(job: Job, workers: int | None = None) -> JobRecord:
    """Return a record in which all replicas run, with ``workers`` workers if given."""
    counts = {role.name: role.replicas for role in job.roles}
    if workers is not None:
        counts["worker"] = workers
    replicas = tuple(
        ReplicaRecord(
            role=role,
            index=index,
            attempt=1,
            generation=1,
            node="n1",
            state=ReplicaState.RUNNING,
            running_at=1,
        )
        for role, count in counts.items()
        for index in range(count)
    )
    return JobRecord(job_id="j-1", applied_sequence=1, job=job, attempt=1, generation=1, replicas=replicas)


def variables(record: JobRecord, job: Job, *, local: bool) -> dict[tuple[str, int], dict[str, str]]:
    context = RuntimeContext(
        addresses=addresses_of(job, local=local),
        members_path="/m",
        config_folder="/etc/mpi",
        interface="lo" if local else "",
    )
    return {
        replica.key: environment(record, job, replica, context=context, traceparent="00-a-b-01")
        for replica in record.replicas
    }


@given(job=jobs(), local=st.booleans())
def test_every_variable_is_valid_process_environment(job: Job, local: bool) -> None:
    for env in variables(record_of(job), job, local=local).values():
        for name, value in env.items():
            assert isinstance(value, str)
            assert name.isidentifier()
            assert "\0" not in value


@given(job=jobs(grows=True), local=st.booleans())
def test_no_two_replicas_have_the_same_address(job: Job, local: bool) -> None:
    addresses = addresses_of(job, local=local)

    assert len(set(addresses.values())) == sum(role.max for role in job.roles)
    for key, env in variables(record_of(job), job, local=local).items():
        assert env["MUSTER_ADDRESS"] == addresses[key]
        assert env["MUSTER_PORT"] == addresses[key].rpartition(":")[2]


@given(job=jobs(ELASTIC, grows=True), local=st.booleans(), data=st.data())
def test_growth_of_an_elastic_job_keeps_the_variables_of_running_replicas(
    job: Job, local: bool, data: st.DataObject
) -> None:
    workers = job.role("worker")
    assert workers is not None
    more = data.draw(st.integers(workers.replicas, workers.max))
    before = variables(record_of(job), job, local=local)
    after = variables(record_of(job, more), job, local=local)

    assert {key: after[key] for key in before} == before


@given(job=jobs(tuple(RANKS)))
def test_ranks_are_consecutive_and_consistent_over_all_replicas(job: Job) -> None:
    job = msgspec.structs.replace(job, options=FrameworkOptions())
    rank, size = RANKS[job.framework]
    environments = list(variables(record_of(job), job, local=False).values())

    assert sorted(int(env[rank]) for env in environments) == list(range(len(environments)))
    assert {env[size] for env in environments} == {str(len(environments))}


@given(job=jobs((Framework.TENSORFLOW,)), local=st.booleans())
def test_every_replica_except_an_evaluator_is_in_its_own_tf_config(job: Job, local: bool) -> None:
    addresses = addresses_of(job, local=local)
    for key, env in variables(record_of(job), job, local=local).items():
        config = json.loads(env["TF_CONFIG"])
        role, index = config["task"]["type"], config["task"]["index"]
        assert (role, index) == key
        if role != "evaluator":
            listed = config["cluster"][role]
            assert (listed[str(index)] if isinstance(listed, dict) else listed[index]) == addresses[key]


@given(job=jobs((Framework.MPI, Framework.HOROVOD), grows=True), data=st.data())
def test_the_hostfile_lists_exactly_the_workers(job: Job, data: st.DataObject) -> None:
    workers = job.role("worker")
    assert workers is not None
    count = data.draw(st.integers(1, workers.max))
    hostfile = files(record_of(job, count), job, remote_shell="")["hostfile"].content.decode()

    assert [line.split()[0] for line in hostfile.splitlines()] == [f"demo-worker-{i}" for i in range(count)]
