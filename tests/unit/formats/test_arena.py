"""Arena's command line: what each sub-command means, by the examples of its guide."""

from pathlib import Path

from msgspec.structs import replace

from muster_core.models import (
    Category,
    CleanPodPolicy,
    Framework,
    FrameworkOptions,
    Job,
    JobKind,
    PlacementPolicy,
    Port,
    Resources,
    RestartPolicy,
    Role,
    RunPolicy,
    Severity,
    SuccessPolicy,
    Template,
    Toleration,
)
from muster_formats import parse
from muster_formats.native import native_text

GOLDEN = Path(__file__).resolve().parents[2] / "golden/formats/arena"
GI, MI = 2**30, 2**20
TFJOB_PORT = (Port(name="tfjob-port", number=2222),)


def golden(name: str) -> tuple[Job, ...]:
    """The jobs of an example, without their warnings and their pods."""
    parsed = parse((GOLDEN / f"{name}.sh").read_text())
    assert [problem for problem in parsed.problems if problem.severity is Severity.ERROR] == []
    return tuple(bare(job) for job in parsed.jobs)


def bare(job: Job) -> Job:
    roles = tuple(replace(role, template=replace(role.template, pod={})) for role in job.roles)
    return replace(job, roles=roles, warnings=())


def job_of(command: str) -> Job:
    parsed = parse(command)
    assert [problem for problem in parsed.problems if problem.severity is Severity.ERROR] == []
    return parsed.jobs[0]


def role(name: str, count: int, template: Template, **more: object) -> Role:
    return replace(Role(name=name, replicas=count, min=count, max=count, template=template), **more)


def gpu(count: int = 1) -> Resources:
    return Resources(gpu=1000 * count)


def test_distributed_tensorflow_with_code_and_tensorboard() -> None:
    command = (
        "sh",
        "-c",
        "python code/tensorflow-sample-code/tfjob/docker/v1alpha2/distributed-mnist/main.py --log_dir=/mnt/logs",
    )
    counts = {"workers": "2", "gpus": "1"}
    ps = Template(
        image="tensorflow/tensorflow:1.5.0-devel",
        command=command,
        working_dir="/root",
        env=counts,
        ports=TFJOB_PORT,
    )
    worker = replace(ps, image="tensorflow/tensorflow:1.5.0-devel-gpu", requests=gpu(), limits=gpu())
    board = Template(
        image="tensorflow/tensorflow",
        command=("tensorboard", "--logdir=/mnt/logs", "--bind_all", "--port=$(MUSTER_PORT)"),
        ports=(Port(name="http", number=6006),),
    )
    assert golden("distributed-tensorflow") == (
        Job(
            name="tf-dist-git",
            format="arena",
            framework=Framework.TENSORFLOW,
            roles=(role("ps", 1, ps), role("worker", 2, worker)),
            run=RunPolicy(backoff_limit=0, clean_pod_policy=CleanPodPolicy.RUNNING),
        ),
        Job(
            name="tf-dist-git-tensorboard",
            format="arena",
            kind=JobKind.SERVICE,
            category=Category.JOBS,
            roles=(role("tensorboard", 1, board, restart_policy=RestartPolicy.ON_FAILURE),),
            run=RunPolicy(clean_pod_policy=CleanPodPolicy.ALL),
        ),
    )


def test_an_estimator_with_everything_that_a_role_may_have_of_its_own() -> None:
    base = Template(
        image="registry.example/estimator:1",
        command=("sh", "-c", "python estimator.py"),
        working_dir="/root",
        env={"workers": "3", "gpus": "1", "STEPS": "100", "NAME": "a b"},
        ports=TFJOB_PORT,
        labels={"team": "vision"},
        annotations={"example.com/owner": "Zoe"},
        node_selector={"zone": "a"},
        tolerations=(
            Toleration(key="gpu", operator="Equal", value="yes", effect="NoSchedule"),
            Toleration(key="spot", operator="Exists"),
        ),
        requests=gpu(),
        limits=gpu(),
    )
    restart = RestartPolicy.ON_FAILURE
    ps = replace(
        base,
        ports=(Port(name="tfjob-port", number=22223),),
        requests=Resources(cpu=500, memory=2 * GI),
        limits=Resources(cpu=500, memory=2 * GI),
    )
    worker = replace(
        base,
        node_selector={"disk": "ssd"},
        requests=Resources(cpu=2000, memory=8 * GI, gpu=1000),
        limits=Resources(cpu=4000, memory=8 * GI, gpu=1000),
    )
    chief = replace(base, requests=Resources(cpu=1000, gpu=1000), limits=Resources(cpu=1000, gpu=1000))
    evaluator = replace(base, requests=Resources(memory=GI, gpu=1000), limits=Resources(memory=GI, gpu=1000))
    assert golden("estimator") == (
        Job(
            name="estimator",
            namespace="vision",
            queue="research/vision",
            priority=10,
            labels={"team": "vision"},
            annotations={"example.com/owner": "Zoe"},
            format="arena",
            framework=Framework.TENSORFLOW,
            options=FrameworkOptions(evaluator_in_cluster=True),
            roles=(
                role("ps", 2, ps, restart_policy=restart),
                role("worker", 3, worker, restart_policy=restart),
                role("chief", 1, chief, restart_policy=restart),
                role("evaluator", 1, evaluator, restart_policy=restart),
            ),
            run=RunPolicy(
                backoff_limit=2,
                active_deadline_s=9000,
                queue_deadline_s=90,
                ttl_s=3600,
                clean_pod_policy=CleanPodPolicy.ALL,
                success_policy=SuccessPolicy.ALL_WORKERS,
            ),
        ),
    )


def test_elastic_horovod_is_told_its_bounds() -> None:
    (job,) = golden("elastic-horovod")
    env = {"workers": "3", "gpus": "1", "minWorkers": "1", "maxWorkers": "9"}
    command = (
        "horovodrun\n    -np $((${workers}*${gpus}))\n    --min-np $((${minWorkers}*${gpus}))\n"
        "    --max-np $((${maxWorkers}*${gpus}))\n    --host-discovery-script /etc/mpi/discover_hosts.sh\n    python train.py"
    )
    launcher = Template(
        image="horovod/elastic:1", working_dir="/examples", env=env, command=("sh", "-c", command)
    )
    worker = Template(
        image="horovod/elastic:1", working_dir="/examples", env=env, requests=gpu(), limits=gpu()
    )
    assert job == Job(
        name="elastic-training",
        format="arena",
        framework=Framework.HOROVOD,
        roles=(role("launcher", 1, launcher), role("worker", 3, worker, min=1, max=9)),
        run=RunPolicy(backoff_limit=6, clean_pod_policy=CleanPodPolicy.RUNNING),
    )


def test_the_older_mode_runs_a_program_of_this_machine() -> None:
    base = Template(
        command=("sh", "-c", "python train.py"),
        working_dir="/srv",
        env={"workers": "2", "gpus": "0"},
        ports=TFJOB_PORT,
        requests=Resources(cpu=500),
        limits=Resources(cpu=500),
    )
    worker = replace(
        base,
        ports=(Port(name="tfjob-port", number=2300),),
        requests=Resources(cpu=1000, memory=512 * MI),
        limits=Resources(cpu=1000, memory=512 * MI),
    )
    assert golden("older-mode") == (
        Job(
            name="older",
            format="arena",
            framework=Framework.TENSORFLOW,
            roles=(role("ps", 1, base), role("worker", 2, worker)),
            run=RunPolicy(backoff_limit=0, clean_pod_policy=CleanPodPolicy.RUNNING),
        ),
    )


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


def test_workers_without_an_image_keep_still() -> None:
    job = job_of("arena submit --mode=mpi --name m --workers 2 'mpirun a'")
    assert job.roles[1].template.command == ("sleep", "infinity")


def test_horovod_and_standalone() -> None:
    assert job_of("arena submit hj --name h --image i 'horovodrun a'").framework is Framework.HOROVOD
    standalone = job_of("arena submit --mode=standalone --name s --image i --gpus 1 'python a'")
    assert (standalone.framework, [role.name for role in standalone.roles]) == (Framework.PLAIN, ["worker"])


def test_a_volcano_job_has_a_role_for_each_image() -> None:
    job = job_of(
        "arena submit volcanojob --name v --task-name part --task-images a,b --task-replicas 2 --min-available 3 --queue q"
    )
    amounts = Resources(cpu=250, memory=128 * MI)
    role_ = Template(image="a", requests=amounts, limits=amounts, ports=(Port(name="job-port", number=2222),))
    assert job.roles == (
        role("part-0", 2, role_),
        role("part-1", 2, replace(role_, image="b"), min=1),
    )
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


def test_what_is_said_natively_means_the_same() -> None:
    for name in ("distributed-tensorflow", "estimator", "elastic-horovod", "older-mode"):
        for job in parse((GOLDEN / f"{name}.sh").read_text()).jobs:
            (again,) = parse(native_text(job)).jobs
            assert replace(again, warnings=(), format="") == replace(job, warnings=(), format="")


def test_volumes_shared_memory_and_code_are_for_kubernetes() -> None:
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
