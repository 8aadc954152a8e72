"""Every field of the published schemas of the supported kinds is known: supported, or reported with a reason."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from muster_formats.fields import FieldRow, field_rows, table_rows
from muster_formats.pods import (
    AffinityFields,
    ContainerFields,
    KubernetesMetadataFields,
    PodSpecFields,
    PodTemplateFields,
    TolerationFields,
)
from muster_formats.registry import Format, all_formats
from muster_formats.schema import Effect, Table

HERE = Path(__file__).parent
KINDS = {
    ("kubeflow.org/v1", "TFJob"): "tfjob",
    ("kubeflow.org/v1", "PyTorchJob"): "pytorchjob",
    ("kubeflow.org/v1", "MPIJob"): "mpijob",
    ("kubeflow.org/v2beta1", "MPIJob"): "mpijob-v2beta1",
    ("kubeflow.org/v1", "XGBoostJob"): "xgboostjob",
    ("kubeflow.org/v1", "PaddleJob"): "paddlejob",
    ("kubeflow.org/v1", "JAXJob"): "jaxjob",
    ("kubeflow.org/v1", "MXJob"): "mxjob",
    ("batch/v1", "Job"): "batchjob",
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): "trainjob",
}
PARTS: dict[str, type[Table]] = {
    "objectmeta": KubernetesMetadataFields,
    "podtemplatespec": PodTemplateFields,
    "podspec": PodSpecFields,
    "container": ContainerFields,
    "affinity": AffinityFields,
    "toleration": TolerationFields,
}


def published(name: str) -> list[str]:
    lines = (HERE / f"{name}.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def unknown(name: str, rows: Iterable[FieldRow]) -> list[str]:
    """Return the published paths without a row, neither for the path nor for a parent without a table of its own."""
    known = {row.path for row in rows}
    inner = {path[:end] for path in known for end, mark in enumerate(path) if mark in ".["}
    return [path for path in published(name) if not _covered(path, known, inner)]


def _covered(path: str, known: set[str], inner: set[str]) -> bool:
    above = [path[:end] for end, mark in enumerate(path) if mark in ".["]
    return path in known or any(one in known and one not in inner for one in above)


@pytest.mark.parametrize(("kind", "name"), KINDS.items(), ids=KINDS.values())
def test_every_published_field_of_a_kind_is_known(kind: tuple[str, str], name: str) -> None:
    (known,) = [one for one in all_formats() if (one.version, one.kind) == kind]
    assert unknown(name, field_rows(known)) == []


@pytest.mark.parametrize(("name", "table"), PARTS.items(), ids=PARTS)
def test_every_published_field_of_a_pod_is_known(name: str, table: type[Table]) -> None:
    assert unknown(name, table_rows(table)) == []


def test_every_list_of_published_fields_is_compared() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == {*KINDS.values(), *PARTS}


def test_an_undeclared_field_is_detected() -> None:
    rows = [row for row in table_rows(PodSpecFields) if row.path != "dnsPolicy"]
    assert unknown("podspec", rows) == ["dnsPolicy"]


@pytest.mark.parametrize("known", all_formats(), ids=lambda known: known.title)
def test_every_field_has_a_description_and_a_reason_if_without_effect(known: Format) -> None:
    rows = list(field_rows(known))
    assert [row.path for row in rows if not row.doc and row.effect is Effect.SUPPORTED] == []
    idle = [row for row in rows if row.effect in (Effect.IGNORED, Effect.REJECTED)]
    assert [row.path for row in idle if not row.why] == []
