"""Names on the bus: derived, checked, and the same for everyone."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from muster_bus.messages import check_subject
from muster_events import subjects
from muster_events.subjects import SHARDS, BadToken

BAD = ["", ".", "a.b", "a b", "*", ">", "a\n", "ä", "a/b", "a~b", "x" * 254]


def test_the_job_id_is_the_requests() -> None:
    assert subjects.job_id_of("request-1") == "j-helxay5yux7tvqqn"
    assert subjects.job_id_of("request-1") != subjects.part_job_id(subjects.job_id_of("request-1"), 1)
    assert subjects.job_id_of("request-1") != subjects.job_id_of("request-2")


@given(st.text(), st.integers(0, 1000))
def test_every_request_gives_a_job_id_that_fits_a_subject(request_id: str, part: int) -> None:
    job_id = subjects.part_job_id(subjects.job_id_of(request_id), part)

    assert subjects.is_job_id(job_id)
    assert job_id == subjects.part_job_id(subjects.job_id_of(request_id), part)
    subject = subjects.job_subject(job_id, "JobPlaced")
    check_subject(subject)
    assert subjects.job_id_in(subject) == job_id
    assert subjects.job_in(subject) == (job_id, "JobPlaced")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "j-",
        "j-abcdefghijklmno",
        "j-abcdefghijklmnopq",
        "j-ABCDEFGHIJKLMNOP",
        "j-abcdefghijklmno1",
        "j-abcdefghijklmnop\n",
    ],
)
def test_other_texts_are_no_job_ids(text: str) -> None:
    assert not subjects.is_job_id(text)


@pytest.mark.parametrize("token", BAD)
def test_a_token_that_would_reach_into_others_subjects_is_refused(token: str) -> None:
    for name in (
        lambda: subjects.job_subject(token, "JobPlaced"),
        lambda: subjects.job_subject("j-abcdefghijklmnop", token),
        lambda: subjects.job_events(token),
        lambda: subjects.leader_subject(token),
        lambda: subjects.node_subject(token, "n1"),
        lambda: subjects.in_pool(subjects.POOL_NODES, token),
        lambda: subjects.capacity_subject(token),
        lambda: subjects.live_record_key(token),
        lambda: subjects.ended_record_key(token),
    ):
        with pytest.raises(BadToken):
            name()


@pytest.mark.parametrize("node", [*(bad for bad in BAD if bad != "a.b"), "a..b", ".a", "a.", "a.*", "a.>"])
def test_a_nodes_name_may_have_dots_and_nothing_else_besides(node: str) -> None:
    assert subjects.node_subject("local", "gpu-1.rack.example") == "muster.v1.node.local.gpu-1~rack~example"
    with pytest.raises(BadToken):
        subjects.node_subject("local", node)


def test_the_subjects_are_those_of_the_contract() -> None:
    job_id = "j-abcdefghijklmnop"
    shard = subjects.shard_of(job_id)

    assert subjects.job_subject(job_id, "JobPlaced") == f"muster.v1.job.{shard}.{job_id}.JobPlaced"
    assert subjects.job_events("JobSubmitted") == "muster.v1.job.*.*.JobSubmitted"
    assert subjects.leader_subject("local") == "muster.v1.leader.local"
    assert subjects.in_pool(subjects.POOL_NODES, "local") == "muster.v1.node.local.*"
    assert subjects.capacity_subject("local") == "muster.v1.capacity.local"
    assert subjects.live_record_key(job_id) == f"live.{shard}.{job_id}"
    assert subjects.ended_record_key(job_id) == f"ended.{shard}.{job_id}"
    assert subjects.record_keys(job_id) == f"*.{shard}.{job_id}"
    assert subjects.job_id_in_key(subjects.ended_record_key(job_id)) == job_id


def test_every_shard_is_in_one_partition_with_its_jobs_and_their_records() -> None:
    job_id = "j-abcdefghijklmnop"
    partition = subjects.partition_of(job_id)

    assert sorted(s for n in range(subjects.PARTITIONS) for s in subjects.shards_of(n)) == [*range(SHARDS)]
    assert subjects.shard_of(job_id) in subjects.shards_of(partition)
    assert f"muster.v1.job.{subjects.shard_of(job_id)}.>" in subjects.in_partition(
        subjects.SHARD_EVENTS, partition
    )
    assert f"live.{subjects.shard_of(job_id)}.*" in subjects.partition_records(partition)


def test_the_shard_of_a_job_never_changes() -> None:
    assert {job_id: subjects.shard_of(job_id) for job_id in ("j-abcdefghijklmnop", "j-helxay5yux7tvqqn")} == {
        "j-abcdefghijklmnop": 12,
        "j-helxay5yux7tvqqn": 9,
    }


def test_jobs_are_spread_over_the_shards_evenly() -> None:
    jobs = 8000
    counts = Counter(subjects.shard_of(subjects.job_id_of(f"request-{i}")) for i in range(jobs))

    assert set(counts) == set(range(SHARDS))
    assert max(counts.values()) < 1.25 * jobs / SHARDS
    assert min(counts.values()) > 0.75 * jobs / SHARDS


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "muster.v1.job",
        "muster.v1.job.3.j-1",
        "muster.v1.leader.a.b.c",
        "muster.v1.job.12.j-abcdefghijkl\ufffdnop.JobPlaced",
        "muster.v1.job.12.j-abcdefghijklenop.JobPlaced",
        "muster.v1.job.4.j-abcdefghijklmnop.JobPlaced",
    ],
)
def test_other_and_damaged_subjects_have_no_job(subject: str) -> None:
    with pytest.raises(BadToken):
        subjects.job_id_in(subject)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "live.j-abcdefghijklmnop",
        "live.12.j-abcdefghijkl\ufffdnop",
        "ended.12.j-abcdefghijklenop",
        "ended.4.j-abcdefghijklmnop",
    ],
)
def test_other_and_damaged_keys_are_those_of_no_record(key: str) -> None:
    with pytest.raises(BadToken):
        subjects.job_id_in_key(key)
