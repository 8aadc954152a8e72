"""The documents on the pages of the Kubernetes kinds are valid, without warnings."""

import re
from pathlib import Path

import pytest

from muster_formats import parse

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = ("batch-job.md", "trainjob.md")


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_give_no_warnings(page: str) -> None:
    examples = re.findall(r"^```yaml\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert examples
    for example in examples:
        parsed = parse(example)
        assert parsed.problems == ()
        assert len(parsed.jobs) == 1
