"""Which names, labels and keys are allowed, and how to say that one is not."""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster_formats.problems import shown
from muster_formats.yaml_builder import Json

Schema = dict[str, Json]
"""A JSON Schema."""

_LABEL_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_SUBDOMAIN = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"


@dataclass(frozen=True)
class Rule:
    """A sort of name: ``what`` it is called, its ``pattern`` and longest length, and the same in ``words``."""

    what: str
    pattern: str
    longest: int
    words: str
    lower: bool = False

    def allows(self, name: str) -> bool:
        """Whether ``name`` follows the rule."""
        return len(name) <= self.longest and re.fullmatch(self.pattern, name, re.ASCII) is not None

    def message(self, name: str) -> str:
        """That ``name`` does not follow the rule."""
        if len(name) > self.longest:
            return f"{self.what} has at most {self.longest} characters, this one {len(name)}"
        return f"{shown(name)} is no {self.what.removeprefix('a ').removeprefix('an ')}: {self.words}"

    def remedy(self, name: str) -> str:
        """The nearest allowed name, as advice; empty if there is none."""
        if not self.lower:
            return ""
        near = re.sub(r"[^a-z0-9]+", "-", name.lower()[: self.longest]).strip("-").lstrip("0123456789-")
        return f"write {near}" if near and self.allows(near) else ""

    def schema(self) -> Schema:
        """The rule as JSON Schema."""
        return {"pattern": f"^{self.pattern}$", "maxLength": self.longest}


DNS_1035 = Rule(
    "a name",
    r"[a-z]([-a-z0-9]*[a-z0-9])?",
    63,
    "lower-case letters, digits and hyphens, a letter first, no hyphen last, at most 63",
    lower=True,
)
DNS_1123 = Rule(
    "a name",
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    63,
    "lower-case letters, digits and hyphens, no hyphen first or last, at most 63",
    lower=True,
)
LABEL_KEY = Rule(
    "a label key",
    rf"({_SUBDOMAIN}/)?{_LABEL_NAME}",
    317,
    "letters, digits, '-', '_' and '.', at most 63, after an optional prefix such as example.com/",
)
LABEL_VALUE = Rule(
    "a label value", rf"({_LABEL_NAME})?", 63, "letters, digits, '-', '_' and '.', at most 63, or nothing"
)
RESOURCE_NAME = Rule(
    "a resource name", rf"{_SUBDOMAIN}/{_LABEL_NAME}", 317, "a domain and a name, such as example.com/fpga"
)
EXTENDED = Rule(
    "a resource name",
    rf"hugepages-[A-Za-z0-9.]+|{RESOURCE_NAME.pattern}",
    317,
    "a domain and a name, such as example.com/fpga, or hugepages and their size",
)
VARIABLE = Rule(
    "a variable name", r"[^=\x00-\x1f\x7f]+", 1024, "any characters but '=' and control characters"
)
QUEUE = Rule(
    "a queue name",
    r"[a-z0-9]([-a-z0-9._/]*[a-z0-9])?",
    253,
    "lower-case letters, digits, '-', '_', '.' and '/', a letter or digit first and last",
    lower=True,
)
POLICY = Rule("a policy name", r"[a-z]([a-z0-9_-]*[a-z0-9])?", 63, "lower-case letters, digits, '-' and '_'")
