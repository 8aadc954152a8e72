"""The native format, which can express every job.

``fields``: its tables. ``reader``: documents into jobs. ``writer``: jobs into documents.
"""

from muster_formats.native.fields import (
    API_VERSION,
    AmountFields,
    ApiVersion,
    ElasticPolicyName,
    Processes,
    RendezvousBackend,
    native_schema,
)
from muster_formats.native.reader import BUILD_ROLE, build_role, read_amounts
from muster_formats.native.writer import native_amounts, native_limits, native_text, to_native

__all__ = [
    "API_VERSION",
    "BUILD_ROLE",
    "AmountFields",
    "ApiVersion",
    "ElasticPolicyName",
    "Processes",
    "RendezvousBackend",
    "build_role",
    "native_amounts",
    "native_limits",
    "native_schema",
    "native_text",
    "read_amounts",
    "to_native",
]
