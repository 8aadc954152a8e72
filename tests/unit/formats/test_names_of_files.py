"""A document that need not say its name has that of its file, by whichever door it comes."""

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
def test_the_stem_of_the_file_is_the_name(document: str, source: str, name: str) -> None:
    (job,) = read_document(document, source_name=source).jobs
    assert job.name == name


@pytest.mark.parametrize("source", ["", "-", "<stdin>"])
def test_what_comes_from_no_file_is_called_as_its_kind_or_refused(source: str) -> None:
    (job,) = read_document(OLDER, source_name=source).jobs
    assert job.name == "experiment"
    assert [p.path for p in read_document(TODAY, source_name=source).problems] == ["name"]
