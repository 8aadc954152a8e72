"""Traces of every format, and the problems of invalid ones."""

from __future__ import annotations

import pytest

from muster_core.models import Problem, Severity
from muster_core.simulation import FORMATS, SECOND, Trace, TraceJob, Work, made_elastic, read_trace

TIRESIAS = """job_id,num_gpu,submit_time,iterations,model_name,duration,interval
0,1,100,606,vgg19,164,30
1,8,130,133,vgg11,147,23
"""
MURI = """job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,\
resource_time_0,resource_time_1,resource_time_2,priority
0,8,0,10956,gpt2,4,5095000,91000,437,0.6,419,49,0
1,2,1534000,1463,vgg16,16,281000,28000,214,82,75,66,1
"""
POLLUX = """name,time,application,num_replicas,batch_size
cifar10-0,107,cifar10,6,2048
imagenet-1,110,imagenet,32,6400
"""
PHILLY_CSV = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:03,2951.0,8,23608.0,6214e9
"""
OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0000,12000,16384,1,1000,,LS,Running,0,100,0
openb-pod-0001,6000,12288,1,460,V100M16|V100M32,LS,Running,50,250,60
openb-pod-0017,88000,327680,8,1000,,Burstable,Succeeded,60,90,60
openb-pod-0061,11908,8192,1,1000,,BE,Pending,70,80,
"""
PHILLY_JSON = """[{"status": "Pass", "vc": "ee9e8c", "jobid": "application_1", "submitted_time": "2017-10-07 01:11:39", "user": "u",
"attempts": [{"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:23", "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}]},
{"start_time": "2017-10-07 01:13:30", "end_time": "2017-10-07 01:13:36", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1", "gpu2"]}]}]},
{"status": "Killed", "vc": "x", "jobid": "application_2", "submitted_time": "2017-10-07 01:00:00", "user": "u", "attempts": []}]"""


def shape(job: TraceJob) -> tuple[str, float, int, int]:
    """Name, arrival (s), replicas, milli-GPUs of one."""
    return job.name, job.submit_us / SECOND, job.replicas, job.worker.gpu


def errors(trace: Trace) -> list[Problem]:
    return [problem for problem in trace.problems if problem.severity is Severity.ERROR]


def test_a_tiresias_trace_has_gangs_of_single_gpus() -> None:
    trace = read_trace(TIRESIAS)
    assert trace.format == "tiresias"
    assert [shape(job) for job in trace.jobs] == [("job-0", 0, 1, 1000), ("job-1", 30, 8, 1000)]
    assert trace.jobs[1].work == Work(amount_us=147 * SECOND)
    assert trace.problems == ()


def test_a_muri_trace_has_milliseconds_and_is_distinguished_from_tiresias() -> None:
    trace = read_trace(MURI)
    assert trace.format == "muri"
    assert [shape(job) for job in trace.jobs] == [("job-0", 0, 8, 1000), ("job-1", 1534, 2, 1000)]
    assert trace.jobs[0].work == Work(amount_us=5095 * SECOND)
    assert [job.priority for job in trace.jobs] == [0, 1]


def test_pollux_jobs_are_elastic_with_the_work_of_their_application() -> None:
    trace = read_trace(POLLUX)
    assert trace.format == "pollux"
    first, second = trace.jobs
    assert (first.min, first.replicas, first.max, second.max) == (1, 6, 16, 32)
    assert first.work == Work(amount_us=1800 * SECOND, serial=140)


def test_an_unknown_application_is_an_error() -> None:
    trace = read_trace(POLLUX + "x,200,transformer,2,1\n")
    (problem,) = errors(trace)
    assert (problem.line, problem.path, problem.found) == (4, "application", "transformer")
    assert len(trace.jobs) == 2


def test_a_philly_table_is_sorted_by_arrival() -> None:
    trace = read_trace(PHILLY_CSV)
    assert trace.format == "philly"
    assert [shape(job) for job in trace.jobs] == [("job-3", 0, 8, 1000), ("job-2", 2932, 1, 1000)]
    assert trace.jobs[0].queue == "6214e9"


def test_a_philly_job_log_adds_up_attempts() -> None:
    trace = read_trace(PHILLY_JSON)
    assert trace.format == "philly-json"
    (job,) = trace.jobs
    assert shape(job) == ("application_1", 0, 3, 1000)
    assert job.work == Work(amount_us=(74 + 6) * SECOND)
    (problem,) = trace.problems
    assert problem.severity is Severity.WARNING
    assert problem.path == "$[1]"


def test_an_openb_trace_has_gpu_shares_and_models_and_omits_pods_that_never_ran() -> None:
    trace = read_trace(OPENB)
    assert trace.format == "openb"
    whole, share, eight = trace.jobs
    assert (whole.worker.gpu, share.worker.gpu, eight.worker.gpu) == (1000, 460, 8000)
    assert share.gpu_models == ("V100M16", "V100M32")
    assert share.worker.memory == 12 * 2**30
    assert share.work == Work(amount_us=190 * SECOND)
    assert errors(trace) == []
    assert [problem.line for problem in trace.problems] == [5]


def test_musters_own_columns() -> None:
    text = """name,submit_s,duration_s,work_s,serial,replicas,min,max,gpus,cpus,memory_gib,priority,queue,user
a,0,60,,,4,,,1,2,8,5,research,ann
b,1,,3600,0.05,4,1,16,1,,,,,
c,2,60,,,2,1,4,0.5,,,,,
"""
    trace = read_trace(text)
    assert trace.format == "muster"
    rigid, elastic, timed = trace.jobs
    assert (rigid.min, rigid.max, rigid.priority, rigid.queue, rigid.user) == (4, 4, 5, "research", "ann")
    assert (rigid.worker.cpu, rigid.worker.memory) == (2000, 8 * 2**30)
    assert rigid.work == Work(amount_us=60 * SECOND)
    assert elastic.work == Work(amount_us=3600 * SECOND, serial=50)
    assert timed.work == Work(amount_us=60 * SECOND * 2000 // 1140, serial=140)
    assert timed.worker.gpu == 500


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ("x,1,60,,1,1", "submit_s"),
        ("0,0,60,,1,1", "replicas"),
        ("0,2,60,,3,4", "replicas"),
        ("0,1,,,1,1", "duration_s"),
        ("0,1,60,60,1,1", "duration_s"),
        ("0,1,nan,,1,1", "duration_s"),
        ("0,1.5,60,,1,2", "replicas"),
        ("-1,1,60,,1,1", "submit_s"),
    ],
)
def test_an_invalid_cell_is_reported_with_its_line_and_its_row_omitted(row: str, column: str) -> None:
    trace = read_trace(f"submit_s,replicas,duration_s,work_s,min,max\n5,1,60,,1,1\n{row}\n")
    assert {(problem.line, problem.path) for problem in errors(trace)} == {(3, column)}
    assert len(trace.jobs) == 1


def test_unknown_columns_are_reported() -> None:
    trace = read_trace("submit_s,replicas,duration_s,colour\n0,1,60,red\n")
    (problem,) = trace.problems
    assert problem.severity is Severity.WARNING
    assert "'colour'" in problem.message


def test_unknown_columns_are_rejected_with_the_nearest_format() -> None:
    (problem,) = read_trace("job_id,num_gpu,submit_time,duration,model_name\n0,1,0,1,x\n").problems
    assert problem.code == "UnknownFormat"
    assert problem.fix == "the nearest format is tiresias, which also has iterations"


def test_ambiguous_columns_are_rejected_unless_the_format_is_given() -> None:
    both = "submit_s,replicas,duration_s,timestamp,duration,num_gpus\n5,2,60,2017-10-09 07:01:55,66.0,1\n"
    (problem,) = read_trace(both).problems
    assert problem.message == "the columns match several formats: muster, philly"
    assert problem.fix == "choose one with --format"
    assert read_trace(both, format_name="philly").jobs[0].work == Work(amount_us=66 * SECOND)


def test_a_format_with_missing_columns_is_rejected() -> None:
    (problem,) = read_trace(TIRESIAS, format_name="openb").problems
    assert "cpu_milli" in problem.message


@pytest.mark.parametrize("text", ["", "\n", "[", "[]", "{}", "\x00", "a", '"', "submit_s,replicas\n", "[1]"])
def test_an_invalid_file_has_no_jobs(text: str) -> None:
    for format_name in ("", *FORMATS):
        assert read_trace(text, format_name=format_name).jobs == ()


def test_names_are_unique() -> None:
    trace = read_trace("name,submit_s,replicas,duration_s\na,0,1,1\na,1,1,1\na-1,2,1,1\n")
    assert len({job.name for job in trace.jobs}) == 3


def test_a_rigid_job_made_elastic_takes_equally_long_at_its_old_size() -> None:
    (job, *_) = read_trace(TIRESIAS).jobs[1:]
    wider = made_elastic(job, 2)
    assert (wider.min, wider.replicas, wider.max) == (1, 8, 16)
    assert wider.work.amount_us == 147 * SECOND * 8000 // (1000 + 140 * 7)
