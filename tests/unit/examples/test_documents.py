"""The job documents beside the programs."""

from pathlib import Path
from typing import cast

import pytest
import yaml

EXAMPLES = Path(__file__).parents[3] / "examples"
BAD = sorted((EXAMPLES / "bad").glob("*.yaml"))
GOOD = sorted(
    path for glob in ("digits/*.yaml", "hello/*.yaml", "frameworks/*/*.yaml") for path in EXAMPLES.glob(glob)
)

Mapping = dict[str, object]


def read(path: Path) -> Mapping:
    return cast("Mapping", yaml.safe_load(path.read_text()))


def below(document: object, *keys: str | int) -> object:
    for key in keys:
        document = cast("dict[str | int, object]", document)[key]
    return document


def test_both_forms_of_the_digits_are_equal() -> None:
    tfjob, job = read(EXAMPLES / "digits/tfjob.yaml"), read(EXAMPLES / "digits/job.yaml")
    assert below(tfjob, "spec", "min-instances") == below(job, "spec", "roles", "worker", "min") == 1
    assert below(tfjob, "spec", "max-instances") == below(job, "spec", "roles", "worker", "max") == 4
    for layout, native in (("PS", "ps"), ("Worker", "worker")):
        replica = below(tfjob, "spec", "tfReplicaSpecs", layout)
        role = below(job, "spec", "roles", native)
        container = below(replica, "template", "spec", "containers", 0)
        assert below(replica, "replicas") == below(role, "replicas")
        assert below(replica, "restartPolicy") == below(role, "restartPolicy")
        assert below(container, "command") == below(role, "command")
        assert below(container, "resources", "limits") == below(role, "resources")


@pytest.mark.parametrize("path", GOOD, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_good_document_is_named_after_its_file_or_folder(path: Path) -> None:
    assert below(read(path), "metadata", "name") in (path.stem, path.parent.name)


def test_there_are_bad_documents_of_at_least_ten_kinds_in_both_formats() -> None:
    texts = [path.read_text() for path in BAD]
    assert len(texts) >= 10
    assert any("kubeflow.org/v1" in text for text in texts)
    assert any("muster.dev/v1" in text for text in texts)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_an_invalid_document_is_rejected_with_its_problems(path: Path) -> None:
    assert path.read_text().startswith("# Wrong: ")
