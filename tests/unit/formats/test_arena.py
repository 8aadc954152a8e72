"""Arena's sub-commands and the jobs that they submit; the examples of its guide are in ``test_golden``."""

from msgspec.structs import replace

from muster_core.models import (
    CleanPodPolicy,
    Framework,
    FrameworkOptions,
    Job,
    PlacementPolicy,
    Port,
    Resources,
    Role,
    Severity,
    Template,
)
from muster_formats import parse

GI, MI = 2**30, 2**20


def job_of(command: str) -> Job:
    parsed = parse(command)
    assert [problem for problem in parsed.problems if problem.severity is Severity.ERROR] == []
    return parsed.jobs[0]


def role(name: str, count: int, template: Template, **more: object) -> Role:
    return replace(Role(name=name, replicas=count, min=count, max=count, template=template), **more)


def test_the_workers_of_pytorch_include_the_master() -> None:
    job = job_of(
        "arena submit pytorchjob --name p --image i --workers 3 --cpu 2 --nproc-per-node gpu 'torchrun t.py'"
    )
    master, worker = job.roles
    assert (master.name, master.replicas, worker.name, worker.replicas) == ("master", 1, "worker", 2)
    assert master.template == worker.template
    assert master.template.ports == (Port(name="pytorchjob-port", number=23456),)
    assert master.template.requests == Resources(cpu=2000)
    assert job.options == FrameworkOptions(processes="gpu")
    assert [role.name for role in job_of("arena submit py --name p --image i x").roles] == ["master"]


def test_the_launcher_of_mpi_has_the_command_and_no_gpu() -> None:
    job = job_of(
        "arena submit mpijob --name m --image i --workers 2 --gpus 4 --gputopology --memory 1Gi 'mpirun a'"
    )
    launcher, worker = job.roles
    assert launcher.template.command == ("sh", "-c", "mpirun a")
    assert launcher.template.requests == Resources(memory=GI)
    assert (worker.replicas, worker.template.command) == (2, ())
    assert worker.template.requests == Resources(memory=GI, gpu=4000)
    assert (job.framework, job.placement) == (Framework.MPI, PlacementPolicy(gpu_topology=True))
    assert job.run.clean_pod_policy is CleanPodPolicy.NONE


def test_mpi_workers_without_an_image_sleep() -> None:
    job = job_of("arena submit --mode=mpi --name m --workers 2 'mpirun a'")
    assert job.roles[1].template.command == ("sleep", "infinity")


def test_the_framework_follows_the_sub_command_or_the_mode() -> None:
    assert job_of("arena submit hj --name h --image i 'horovodrun a'").framework is Framework.HOROVOD
    standalone = job_of("arena submit --mode=standalone --name s --image i --gpus 1 'python a'")
    assert (standalone.framework, [role.name for role in standalone.roles]) == (Framework.PLAIN, ["worker"])


def test_a_volcano_job_has_a_role_for_each_image() -> None:
    job = job_of(
        "arena submit volcanojob --name v --task-name part --task-images a,b --task-replicas 2 --min-available 3 --queue q"
    )
    amounts = Resources(cpu=250, memory=128 * MI)
    role_ = Template(image="a", requests=amounts, limits=amounts, ports=(Port(name="job-port", number=2222),))
    assert job.roles == (role("part-0", 2, role_), role("part-1", 2, replace(role_, image="b"), min=1))
    assert (job.min_available, job.queue) == (3, "q")


def test_a_tensorflow_job_may_be_elastic() -> None:
    worker = job_of(
        "muster submit tfjob --name e --workers 2 --min-workers 1 --max-workers 4 python t.py"
    ).role("worker")
    assert worker
    assert (worker.min, worker.replicas, worker.max) == (1, 2, 4)


def test_several_commands_are_several_submissions() -> None:
    parsed = parse(
        "arena submit tf --name=a x\n\n# and\nmuster submit tf --name=b y; arena submit tf --name=c z"
    )
    assert [job.name for job in parsed.jobs] == ["a", "b", "c"]


def test_volumes_shared_memory_and_code_become_parts_of_the_pod() -> None:
    command = (
        "arena submit tf --name k --image i --data claim:/data --data-dir /mnt:/in --share-memory 1Gi --sync-mode rsync "
        "--sync-source host::code --hostNetwork --hostIPC --image-pull-secret s --image-pull-policy Never --rdma x"
    )
    parsed = parse(command)
    (job,) = parsed.jobs
    spec = job.roles[0].template.pod["spec"]
    assert spec["volumes"] == [
        {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"name": "code-sync", "emptyDir": {}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "training-data-0", "hostPath": {"path": "/mnt"}},
    ]
    (container,) = spec["containers"]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == [
        "/dev/shm",
        "/root/code",
        "/data",
        "/in",
    ]
    assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert container["imagePullPolicy"] == "Never"
    assert spec["initContainers"][0]["command"] == ["rsync", "-avP", "host::code", "/code"]
    assert (spec["hostNetwork"], spec["hostIPC"], spec["dnsPolicy"]) == (
        True,
        True,
        "ClusterFirstWithHostNet",
    )
    assert spec["imagePullSecrets"] == [{"name": "s"}]
    assert job.roles[0].template.requests == Resources(extended={"rdma/hca": 1})
    given = {problem.found for problem in parsed.problems if problem.code == "KubernetesOnly"}
    assert {"--data", "--data-dir", "--sync-mode", "--hostNetwork", "--image-pull-secret"} <= given


def test_devices_of_another_vendor_are_counted() -> None:
    job = job_of("arena submit tf --name d --image i --device amd.com/gpu=2 --device example.com/fpga=1 x")
    assert job.roles[0].template.requests == Resources(gpu=2000, extended={"example.com/fpga": 1})
