"""Rules for names, labels and keys, with messages, JSON Schema and the nearest valid name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster_formats.nodes import JsonObject
from muster_formats.problems import shown

_LABEL_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_SUBDOMAIN = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"


@dataclass(frozen=True)
class NameRule:
    """A rule for one sort of name.

    ``noun`` is what messages call it, with its article; ``pattern`` and ``max_length`` decide, ``description`` says the same in words.
    ``lower_case``: whether an invalid name is corrected by writing it in lower case with hyphens.
    """

    noun: str
    pattern: str
    max_length: int
    description: str
    lower_case: bool = False

    def allows(self, name: str) -> bool:
        """Whether ``name`` is valid."""
        return len(name) <= self.max_length and re.fullmatch(self.pattern, name, re.ASCII) is not None

    def message(self, name: str) -> str:
        """Say why ``name`` is not valid."""
        if len(name) > self.max_length:
            return f"{self.noun} must have at most {self.max_length} characters, not {len(name)}"
        noun = self.noun.removeprefix("a ").removeprefix("an ")
        return f"{shown(name)} is not a valid {noun}: use {self.description}"

    def fix(self, name: str) -> str:
        """Advise the nearest valid name; empty if there is none."""
        if not self.lower_case:
            return ""
        near = re.sub(r"[^a-z0-9]+", "-", name.lower()[: self.max_length]).strip("-").lstrip("0123456789-")
        return f"write {near}" if near and self.allows(near) else ""

    def schema(self) -> JsonObject:
        """The rule as JSON Schema."""
        return {"pattern": f"^{self.pattern}$", "maxLength": self.max_length}


DNS_1035 = NameRule(
    "a name",
    r"[a-z]([-a-z0-9]*[a-z0-9])?",
    63,
    "lower-case letters, digits and hyphens, a letter first, no hyphen last, at most 63",
    lower_case=True,
)
DNS_1123 = NameRule(
    "a name",
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    63,
    "lower-case letters, digits and hyphens, no hyphen first or last, at most 63",
    lower_case=True,
)
LABEL_KEY = NameRule(
    "a label key",
    rf"({_SUBDOMAIN}/)?{_LABEL_NAME}",
    317,
    "letters, digits, '-', '_' and '.', at most 63, after an optional prefix such as example.com/",
)
LABEL_VALUE = NameRule(
    "a label value", rf"({_LABEL_NAME})?", 63, "letters, digits, '-', '_' and '.', at most 63, or nothing"
)
RESOURCE_NAME = NameRule(
    "a resource name", rf"{_SUBDOMAIN}/{_LABEL_NAME}", 317, "a domain and a name, such as example.com/fpga"
)
EXTENDED_RESOURCE = NameRule(
    "a resource name",
    rf"hugepages-[A-Za-z0-9.]+|{RESOURCE_NAME.pattern}",
    317,
    "a domain and a name, such as example.com/fpga, or hugepages and their size",
)
VARIABLE = NameRule(
    "a variable name", r"[^=\x00-\x1f\x7f]+", 1024, "any characters but '=' and control characters"
)
QUEUE = NameRule(
    "a queue name",
    r"[a-z0-9]([-a-z0-9._/]*[a-z0-9])?",
    253,
    "lower-case letters, digits, '-', '_', '.' and '/', a letter or digit first and last",
    lower_case=True,
)
