"""Variables of each framework, against tables from the frameworks' documentation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core.frameworks import RemoteShell
from muster_core.models import Convention, Framework, FrameworkOptions, Rendezvous, Resources, Role, Template

if TYPE_CHECKING:
    from .conftest import GangBuilder

UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
MASTER = {
    "MASTER_ADDR": "master-0",
    "MASTER_PORT": "2222",
    "PET_MASTER_ADDR": "master-0",
    "PET_MASTER_PORT": "2222",
    "PET_NPROC_PER_NODE": "1",
    "PET_NNODES": "3",
    "WORLD_SIZE": "3",
    **UNBUFFERED,
}


@pytest.mark.parametrize(("me", "rank"), [(("master", 0), "0"), (("worker", 0), "1"), (("worker", 1), "2")])
def test_pytorch_with_a_master(gang: GangBuilder, me: tuple[str, int], rank: str) -> None:
    job = gang.job(("worker", 2, 2), ("master", 1, 1), framework=Framework.PYTORCH)

    assert gang.variables(job, *me) == MASTER | {"RANK": rank, "PET_NODE_RANK": rank}


@pytest.mark.parametrize("index", [0, 1])
def test_pytorch_without_a_master_uses_the_first_worker(gang: GangBuilder, index: int) -> None:
    job = gang.job(("worker", 2, 2), framework=Framework.PYTORCH)

    assert gang.variables(job, "worker", index) == {
        "MASTER_ADDR": "worker-0",
        "MASTER_PORT": "2222",
        "PET_MASTER_ADDR": "worker-0",
        "PET_MASTER_PORT": "2222",
        "PET_NPROC_PER_NODE": "1",
        "PET_NNODES": "2",
        "PET_NODE_RANK": str(index),
        "RANK": str(index),
        "WORLD_SIZE": "2",
        **UNBUFFERED,
    }


@pytest.mark.parametrize(
    ("given", "gpu", "each", "world"),
    [
        ("", 0, "1", "2"),
        ("", 4000, "4", "2"),
        ("", 500, "1", "2"),
        ("3", 0, "3", "6"),
        ("auto", 8000, "auto", "2"),
        ("gpu", 8000, "gpu", "2"),
    ],
)
def test_pytorch_processes_of_a_node(gang: GangBuilder, given: str, gpu: int, each: str, world: str) -> None:
    role = Role(name="worker", replicas=2, min=2, max=2, template=Template(requests=Resources(gpu=gpu)))
    job = gang.job(framework=Framework.PYTORCH, roles=(role,), options=FrameworkOptions(processes=given))

    variables = gang.variables(job, "worker", 1)

    assert (variables["PET_NPROC_PER_NODE"], variables["WORLD_SIZE"], variables["RANK"]) == (each, world, "1")


ELASTIC = {
    "MASTER_ADDR": "worker-0",
    "MASTER_PORT": "2222",
    "PET_MASTER_ADDR": "worker-0",
    "PET_MASTER_PORT": "2222",
    "PET_NPROC_PER_NODE": "1",
    "PET_NNODES": "1:4",
    "PET_RDZV_BACKEND": "c10d",
    "PET_RDZV_ENDPOINT": "worker-0:2222",
    "PET_RDZV_ID": "j-1-2",
    **UNBUFFERED,
}


@pytest.mark.parametrize(("index", "hosts"), [(0, "1"), (1, "0")])
def test_elastic_pytorch_has_a_rendezvous_at_the_first_worker_and_no_ranks(
    gang: GangBuilder, index: int, hosts: str
) -> None:
    job = gang.job(("worker", 2, 4), framework=Framework.PYTORCH)

    assert gang.variables(job, "worker", index) == ELASTIC | {"PET_RDZV_CONF": f"is_host={hosts}"}


def test_elastic_pytorch_follows_its_rendezvous_options(gang: GangBuilder) -> None:
    rendezvous = Rendezvous(
        backend="etcd-v2",
        host="etcd",
        port=2379,
        job_id="mine",
        conf={"timeout": "900", "protocol": "https"},
        max_restarts=5,
        standalone=True,
    )
    job = gang.job(
        ("worker", 2, 4), framework=Framework.PYTORCH, options=FrameworkOptions(rendezvous=rendezvous)
    )

    assert gang.variables(job, "worker", 1) == ELASTIC | {
        "PET_RDZV_BACKEND": "etcd-v2",
        "PET_RDZV_ENDPOINT": "etcd:2379",
        "PET_RDZV_ID": "mine",
        "PET_RDZV_CONF": "timeout=900,protocol=https",
        "PET_MAX_RESTARTS": "5",
        "PET_STANDALONE": "1",
    }


def test_a_policy_makes_pytorch_elastic_even_at_one_size(gang: GangBuilder) -> None:
    options = FrameworkOptions(rendezvous=Rendezvous(conf={"is_host": "true"}))
    job = gang.job(("worker", 1, 1), framework=Framework.PYTORCH, options=options)

    variables = gang.variables(job, "worker", 0)

    assert (variables["PET_NNODES"], variables["PET_RDZV_CONF"]) == ("1:1", "is_host=true")


def test_pytorch_uses_the_interface_of_the_runtime(gang: GangBuilder) -> None:
    job = gang.job(("worker", 2, 2), framework=Framework.PYTORCH)

    variables = gang.variables(job, "worker", 0, gang.context(job, gang.ports(job), interface="lo"))

    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
    assert [variables[name] for name in names] == ["lo"] * 3
    assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("127.0.0.1", "21000")


@pytest.mark.parametrize("framework", [Framework.MPI, Framework.HOROVOD])
def test_an_mpi_launcher_has_a_hostfile_and_a_remote_shell(gang: GangBuilder, framework: Framework) -> None:
    job = gang.job(("launcher", 1, 1), ("worker", 2, 2), framework=framework)

    assert gang.variables(job, "launcher", 0) == {
        "OMPI_MCA_plm_rsh_agent": "/etc/mpi/remote_shell.sh",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "I_MPI_HYDRA_BOOTSTRAP": "rsh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": "/etc/mpi/remote_shell.sh",
    }
    assert gang.variables(job, "worker", 0) == {}


def test_mpi_uses_the_interface_of_the_runtime(gang: GangBuilder) -> None:
    job = gang.job(("launcher", 1, 1), ("worker", 1, 1), framework=Framework.HOROVOD)
    context = gang.context(job, interface="lo", remote_shell=RemoteShell(env={"ATTACHED": "1"}))
    on_lo = {
        "OMPI_MCA_oob_tcp_if_include": "lo",
        "OMPI_MCA_btl_tcp_if_include": "lo",
        "OMPI_MCA_btl": "self,tcp",
        "HOROVOD_GLOO_IFACE": "lo",
    }

    assert gang.variables(job, "worker", 0, context) == on_lo
    assert gang.variables(job, "launcher", 0, context).items() >= (on_lo | {"ATTACHED": "1"}).items()
    plain = msgspec.structs.replace(job, framework=Framework.MPI)
    assert "HOROVOD_GLOO_IFACE" not in gang.variables(plain, "worker", 0, context)


@pytest.mark.parametrize(("me", "rank"), [(("master", 0), "0"), (("worker", 0), "1"), (("worker", 1), "2")])
def test_xgboost_with_a_common_worker_port(gang: GangBuilder, me: tuple[str, int], rank: str) -> None:
    job = gang.job(("master", 1, 1), ("worker", 2, 2), framework=Framework.XGBOOST)

    assert gang.variables(job, *me) == {
        "MASTER_ADDR": "master-0",
        "MASTER_PORT": "2222",
        "WORLD_SIZE": "3",
        "RANK": rank,
        "WORKER_ADDRS": "worker-0,worker-1",
        "WORKER_PORT": "2222",
        **UNBUFFERED,
    }


def test_xgboost_with_a_port_for_each_worker(gang: GangBuilder) -> None:
    job = gang.job(("master", 1, 1), ("worker", 2, 2), framework=Framework.XGBOOST)
    context = gang.context(job, gang.ports(job))

    variables = [gang.variables(job, *me, context) for me in (("master", 0), ("worker", 0), ("worker", 1))]

    assert {one["WORKER_ADDRS"] for one in variables} == {"127.0.0.1:21001,127.0.0.1:21002"}
    assert [one["WORKER_PORT"] for one in variables] == ["21001", "21001", "21002"]


def test_xgboost_with_a_master_only(gang: GangBuilder) -> None:
    job = gang.job(("master", 1, 1), framework=Framework.XGBOOST)

    assert "WORKER_ADDRS" not in gang.variables(job, "master", 0)


def test_paddle_in_collective_mode(gang: GangBuilder) -> None:
    job = gang.job(("worker", 2, 2), framework=Framework.PADDLE)

    assert gang.variables(job, "worker", 1) == {
        "PADDLE_JOB_ID": "demo",
        "PADDLE_NNODES": "2",
        "PADDLE_MASTER": "worker-0:2222",
        **UNBUFFERED,
    }


@pytest.mark.parametrize(
    ("me", "part"), [(("master", 0), "PADDLE_SERVER_NUM"), (("worker", 1), "PADDLE_TRAINER_NUM")]
)
def test_paddle_with_a_parameter_server(gang: GangBuilder, me: tuple[str, int], part: str) -> None:
    job = gang.job(("master", 1, 1), ("worker", 2, 2), framework=Framework.PADDLE)

    assert gang.variables(job, *me) == {
        "PADDLE_JOB_ID": "demo",
        "PADDLE_NNODES": "3",
        "PADDLE_MASTER": "master-0:2222",
        part: "1",
        **UNBUFFERED,
    }


def test_elastic_paddle(gang: GangBuilder) -> None:
    job = gang.job(("worker", 2, 4), framework=Framework.PADDLE)

    assert gang.variables(job, "worker", 1)["PADDLE_NNODES"] == "1:4"


@pytest.mark.parametrize("index", [0, 2])
def test_jax_has_a_coordinator_and_process_ids(gang: GangBuilder, index: int) -> None:
    job = gang.job(("worker", 3, 3), framework=Framework.JAX)

    assert gang.variables(job, "worker", index) == {
        "COORDINATOR_ADDRESS": "worker-0",
        "COORDINATOR_PORT": "2222",
        "NUM_PROCESSES": "3",
        "PROCESS_ID": str(index),
        **UNBUFFERED,
    }


MX_CLUSTER = """
{"scheduler": [{"url": "scheduler-0", "port": 2222}],
 "server": [{"url": "server-0", "port": 2222}],
 "worker": [{"url": "worker-0", "port": 2222}, {"url": "worker-1", "port": 2222}]}
"""


@pytest.mark.parametrize(
    ("me", "worker_id"), [(("scheduler", 0), None), (("server", 0), None), (("worker", 1), "1")]
)
def test_mxnet_has_a_scheduler_and_mx_config(
    gang: GangBuilder, me: tuple[str, int], worker_id: str | None
) -> None:
    job = gang.job(("scheduler", 1, 1), ("server", 1, 1), ("worker", 2, 2), framework=Framework.MXNET)

    variables = gang.variables(job, *me)

    assert json.loads(variables.pop("MX_CONFIG")) == {
        "cluster": json.loads(MX_CLUSTER),
        "labels": {"scheduler": "", "server": "", "worker": ""},
        "task": {"type": me[0], "index": me[1]},
    }
    assert variables == {
        "DMLC_ROLE": me[0],
        "DMLC_PS_ROOT_URI": "scheduler-0",
        "DMLC_PS_ROOT_PORT": "2222",
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": "2",
        **({"DMLC_WORKER_ID": worker_id} if worker_id else {}),
        **UNBUFFERED,
    }


def test_mxnet_tuning_has_labels_instead_of_a_scheduler(gang: GangBuilder) -> None:
    tuner = Role(
        name="tuner", replicas=1, min=1, max=1, template=Template(annotations={"tuner-server-key": "2080ti"})
    )
    job = gang.job(framework=Framework.MXNET, roles=(tuner,))

    variables = gang.variables(job, "tuner", 0)

    assert set(variables) == {"MX_CONFIG", "PYTHONUNBUFFERED"}
    assert json.loads(variables["MX_CONFIG"])["labels"] == {"tuner": "2080ti"}


def test_polyaxon_variables_are_added_to_those_of_the_framework(gang: GangBuilder) -> None:
    options = FrameworkOptions(conventions=(Convention.POLYAXON,), parameters={"lr": 0.1, "layers": [1, 2]})
    job = gang.job(("master", 1, 1), ("worker", 1, 2), options=options, namespace="vision")

    variables = gang.variables(job, "worker", 0)

    assert "TF_CONFIG" in variables
    assert {name: json.loads(value) for name, value in variables.items() if name.startswith("POLYAXON_")} == {
        "POLYAXON_CLUSTER": {"master": ["master-0:2222"], "worker": ["worker-0:2222", "worker-1:2222"]},
        "POLYAXON_TASK_INFO": {"type": "worker", "index": 0},
        "POLYAXON_EXPERIMENT_INFO": {
            "project_name": "vision",
            "experiment_name": "demo",
            "experiment_uuid": "j-1",
        },
        "POLYAXON_PARAMS": {"lr": 0.1, "layers": [1, 2]},
        "POLYAXON_DECLARATIONS": {"lr": 0.1, "layers": [1, 2]},
    }


def test_a_plain_job_has_no_framework_variables(gang: GangBuilder) -> None:
    assert gang.variables(gang.job(("worker", 2, 2), framework=Framework.PLAIN), "worker", 0) == {}


def test_sizes_are_those_of_the_current_gang(gang: GangBuilder) -> None:
    job = gang.job(("worker", 2, 4), framework=Framework.JAX)

    assert gang.variables(job, "worker", 1)["NUM_PROCESSES"] == "2"
