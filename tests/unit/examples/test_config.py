"""TF_CONFIG: the identity of the replica, and one clear line if it is unknown."""

import json

import pytest

from examples.digits.trainer.config import Address, ConfigError, read_tf_config

WORKERS = [f"digits-worker-{index}.default.svc:2222" for index in range(4)]


def tf_config(*, role: object = "worker", index: object = 0, **cluster: object) -> dict[str, str]:
    members = {"ps": ["digits-ps-0.default.svc:2222"], "worker": WORKERS, **cluster}
    return {
        "TF_CONFIG": json.dumps(
            {"cluster": members, "task": {"type": role, "index": index}, "environment": "cloud"}
        )
    }


def test_a_worker_reads_its_name_and_its_server() -> None:
    config = read_tf_config(tf_config(index=3))
    assert (config.name, config.server) == ("worker-3", Address("digits-ps-0.default.svc", 2222))


def test_worker_0_is_the_chief_where_there_is_none() -> None:
    assert read_tf_config(tf_config(index=0)).is_chief
    assert not read_tf_config(tf_config(index=1)).is_chief


@pytest.mark.parametrize("role", ["chief", "master"])
def test_a_chief_takes_the_place_of_worker_0(role: str) -> None:
    chief = {role: ["digits-chief-0.default.svc:2222"]}
    assert read_tf_config(tf_config(role=role, **chief)).is_chief
    assert not read_tf_config(tf_config(index=0, **chief)).is_chief


def test_a_dynamic_worker_is_given_a_sparse_map() -> None:
    config = read_tf_config(tf_config(index=7, worker={"7": "127.0.0.1:2227"}))
    assert config.name == "worker-7"


@pytest.mark.parametrize(
    ("host", "bind_host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "localhost"),
        ("::1", "::1"),
        ("digits-ps-0.default.svc", None),
        ("10.0.0.7", None),
    ],
)
def test_the_server_listens_on_loopback_or_everywhere(host: str, bind_host: str | None) -> None:
    assert Address(host, 2222).bind_host == bind_host


def test_an_ipv6_address_keeps_its_brackets_in_print() -> None:
    assert str(read_tf_config(tf_config(ps=["[::1]:2222"])).server) == "[::1]:2222"


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, "TF_CONFIG is not set"),
        ({"TF_CONFIG": " "}, "TF_CONFIG is not set"),
        ({"TF_CONFIG": "{"}, "TF_CONFIG is not JSON"),
        ({"TF_CONFIG": "[" * 100_000}, "TF_CONFIG is not JSON"),
        ({"TF_CONFIG": "[]"}, r"TF_CONFIG is \[\]: expected an object"),
        ({"TF_CONFIG": "{}"}, "TF_CONFIG.cluster is missing"),
        ({"TF_CONFIG": '{"cluster": {}}'}, "TF_CONFIG.task is missing"),
        (tf_config(role="evaluator"), "TF_CONFIG.task.type is 'evaluator'"),
        (tf_config(index=True), "TF_CONFIG.task.index is True"),
        (tf_config(index="0"), "TF_CONFIG.task.index is '0'"),
        (tf_config(index=4), "TF_CONFIG.task is worker 4, but TF_CONFIG.cluster lists 4 of worker"),
        (tf_config(ps=[]), "TF_CONFIG.cluster.ps lists 0 addresses"),
        (tf_config(ps=["a:1", "b:1"]), "TF_CONFIG.cluster.ps lists 2 addresses"),
        (tf_config(ps=["nowhere"]), r"TF_CONFIG.cluster.ps\[0\] is 'nowhere': expected host:port"),
        (tf_config(ps=["host:70000"]), r"TF_CONFIG.cluster.ps\[0\] is 'host:70000'"),
        (tf_config(ps=[2222]), r"TF_CONFIG.cluster.ps\[0\] is 2222"),
        (tf_config(worker={"one": "host:1"}), "TF_CONFIG.cluster.worker has the key 'one'"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(environ: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read_tf_config(environ)
    assert "\n" not in str(caught.value)
