"""The native format, which can express every job.

``fields``: its tables. ``reader``: documents into jobs. ``writer``: jobs into documents.
"""

from muster_formats.native.fields import (
    API_VERSION as API_VERSION,
    AmountFields as AmountFields,
    ApiVersion as ApiVersion,
    ElasticPolicyName as ElasticPolicyName,
    Processes as Processes,
    RendezvousBackend as RendezvousBackend,
    native_schema as native_schema,
)
from muster_formats.native.reader import (
    BUILD_ROLE as BUILD_ROLE,
    build_role as build_role,
    read_amounts as read_amounts,
)
from muster_formats.native.writer import (
    native_amounts as native_amounts,
    native_limits as native_limits,
    native_text as native_text,
    to_native as to_native,
)
