import enum
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from muster_service.settings import (
    Address,
    Secret,
    ServiceSettings,
    SettingsError,
    describe_settings,
    load_settings,
    misspelt_variables,
    parse_duration,
)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Everything(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size: Annotated[int, msgspec.Meta(ge=1, le=64, description="how large")] = 1
    ratio: float = 0.5
    wait_s: float = 1.0
    keep_seconds: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    eager: bool = False
    folder: Path = Path("/var/data")
    mode: Literal["fast", "safe"] = "safe"
    colour: Colour = Colour.RED
    pools: tuple[str, ...] = ("default",)
    token: Secret | None = None
    peer: Address | None = None


def test_every_type_is_read_from_text():
    settings = load_settings(
        Everything,
        {
            "MUSTER_NAME": "a",
            "MUSTER_SIZE": "8",
            "MUSTER_RATIO": "0.25",
            "MUSTER_WAIT_S": "250ms",
            "MUSTER_KEEP_SECONDS": "1h30m",
            "MUSTER_EAGER": "Yes",
            "MUSTER_FOLDER": "/tmp/x",
            "MUSTER_MODE": "FAST",
            "MUSTER_COLOUR": "blue",
            "MUSTER_POOLS": "a, b,",
            "MUSTER_TOKEN": "hush",
            "MUSTER_PEER": "[::1]:80",
        },
    )

    assert settings == Everything(
        name="a",
        size=8,
        ratio=0.25,
        wait_s=0.25,
        keep_seconds=5400.0,
        eager=True,
        folder=Path("/tmp/x"),
        mode="fast",
        colour=Colour.BLUE,
        pools=("a", "b"),
        token=Secret("hush"),
        peer=Address("[::1]:80"),
    )
    assert settings.peer is not None
    assert (settings.peer.host, settings.peer.port) == ("::1", 80)


def test_what_is_not_set_or_empty_keeps_its_default():
    assert load_settings(Everything, {"MUSTER_NAME": "a", "MUSTER_SIZE": " "}) == Everything(name="a")


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("MUSTER_NAME", "", "MUSTER_NAME is not set: it must be a text"),
        ("MUSTER_SIZE", "many", "must be a whole number"),
        ("MUSTER_SIZE", "0", "must be int >= 1"),
        ("MUSTER_SIZE", "65", "must be int <= 64"),
        ("MUSTER_RATIO", "nan", "must be a number"),
        ("MUSTER_WAIT_S", "soon", "must be a duration such as 500ms, 30s or 5m"),
        ("MUSTER_WAIT_S", "1h30", "must be a duration"),
        ("MUSTER_KEEP_SECONDS", "-5s", "must be a duration"),
        ("MUSTER_EAGER", "perhaps", "must be true or false"),
        ("MUSTER_MODE", "loud", "must be one of fast, safe"),
        ("MUSTER_COLOUR", "green", "must be one of red, blue"),
        ("MUSTER_PEER", "localhost", "must be host:port"),
        ("MUSTER_PEER", "localhost:99999", "must be host:port"),
    ],
)
def test_an_invalid_value_is_reported_with_its_variable(variable: str, value: str, allowed: str):
    with pytest.raises(SettingsError) as refused:
        load_settings(Everything, {"MUSTER_NAME": "a", variable: value})

    (problem,) = refused.value.problems
    assert variable in problem
    assert allowed in problem
    assert value == "" or repr(value) in problem


def test_all_bad_values_are_named_at_once():
    with pytest.raises(SettingsError, match="3 settings cannot be used") as refused:
        load_settings(Everything, {"MUSTER_SIZE": "x", "MUSTER_MODE": "y"})

    assert [problem.split("=")[0].split()[0] for problem in refused.value.problems] == [
        "MUSTER_NAME",
        "MUSTER_SIZE",
        "MUSTER_MODE",
    ]


def test_a_struct_may_refuse_what_does_not_fit_together():
    class Range(msgspec.Struct, frozen=True):
        low: int = 0
        high: int = 1

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("MUSTER_LOW must not exceed MUSTER_HIGH")

    with pytest.raises(SettingsError, match="MUSTER_LOW must not exceed MUSTER_HIGH"):
        load_settings(Range, {"MUSTER_LOW": "5"})


def test_a_services_own_variable_goes_before_the_common_one():
    environ = {"MUSTER_BUS_URL": "nats://all:1", "MUSTER_POD_LAUNCHER_BUS_URL": "nats://mine:1"}

    assert load_settings(ServiceSettings, environ, service="pod-launcher").bus_url == "nats://mine:1"
    assert load_settings(ServiceSettings, environ, service="scaler").bus_url == "nats://all:1"


def test_the_standard_variable_names_the_receiver_unless_ours_does():
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://standard:4317"}

    assert load_settings(ServiceSettings, environ).otlp_endpoint == "http://standard:4317"
    environ["MUSTER_OTLP_ENDPOINT"] = "http://ours:4317"
    assert load_settings(ServiceSettings, environ).otlp_endpoint == "http://ours:4317"


def test_a_secret_is_never_shown():
    secret = Secret("hush")

    assert [str(secret), repr(secret), f"{secret}", f"{secret:>9}"] == ["***", "Secret('***')", "***", "***"]
    assert "hush" not in repr(Everything(name="a", token=secret))
    assert secret.reveal() == "hush"


def test_a_bad_secret_is_not_shown_either():
    class Guarded(msgspec.Struct, frozen=True):
        token: Secret

        def __post_init__(self) -> None:
            raise ValueError(f"{self.token} is too short")

    with pytest.raises(SettingsError) as refused:
        load_settings(Guarded, {"MUSTER_TOKEN": "hush"})

    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("MUSTER_BUS_ULR", "did you mean MUSTER_BUS_URL?"),
        ("MUSTER_SCALER_LOGLEVEL", "did you mean MUSTER_SCALER_LOG_LEVEL?"),
    ],
)
def test_a_misspelt_variable_is_pointed_out(name: str, expected: str):
    (sentence,) = misspelt_variables(ServiceSettings, {name: "x"}, service="scaler")

    assert name in sentence
    assert expected in sentence


def test_variables_of_others_are_left_alone():
    environ = {"MUSTER_BUS_URL": "x", "MUSTER_GATEWAY_GRPC_ADDRESS": "x", "MUSTER_JOB_ID": "x", "PATH": "x"}

    assert misspelt_variables(ServiceSettings, environ, service="scaler") == []


def test_settings_describe_themselves():
    rows = {row.variable: row for row in describe_settings(Everything)}

    assert rows["MUSTER_NAME"].default is None
    assert (rows["MUSTER_SIZE"].kind, rows["MUSTER_SIZE"].default, rows["MUSTER_SIZE"].help) == (
        "integer",
        "1",
        "how large",
    )
    assert rows["MUSTER_POOLS"].default == "default"
    assert rows["MUSTER_COLOUR"].default == "red"
    assert rows["MUSTER_WAIT_S"].kind == "duration"


def test_a_type_that_text_cannot_give_is_an_error_of_the_program():
    class Nested(msgspec.Struct, frozen=True):
        inner: dict[str, str]

    with pytest.raises(TypeError, match="inner"):
        load_settings(Nested, {})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5.0), ("0.5s", 0.5), ("250ms", 0.25), ("5m", 300.0), ("1d", 86400.0), ("1m30s", 90.0)],
)
def test_durations_have_units(text: str, seconds: float):
    assert parse_duration(text) == seconds
