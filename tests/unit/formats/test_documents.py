"""A job without a name is named after its file."""

import pytest

from muster_formats import read_document

OLDER = "version: 1\nkind: experiment\nrun: {cmd: train}\n"
TODAY = "version: 1.1\nkind: component\nrun: {kind: job, container: {image: i, command: [train]}}\n"

SOURCES = {
    "mnist.yml": "mnist",
    "./jobs/mnist.yaml": "mnist",
    "/srv/My_Exp.v2.yml": "my-exp-v2",
    "mnist": "mnist",
}


@pytest.mark.parametrize("document", [OLDER, TODAY], ids=["0.x", "today"])
@pytest.mark.parametrize(("source", "name"), SOURCES.items())
def test_a_job_without_a_name_has_its_file_s_stem(document: str, source: str, name: str) -> None:
    (job,) = read_document(document, source_name=source).jobs
    assert job.name == name


@pytest.mark.parametrize("source", ["", "-", "<stdin>"])
def test_a_job_without_name_and_file_is_named_by_its_kind_or_rejected(source: str) -> None:
    (job,) = read_document(OLDER, source_name=source).jobs
    assert job.name == "experiment"
    assert [p.path for p in read_document(TODAY, source_name=source).problems] == ["name"]
