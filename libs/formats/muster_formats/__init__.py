"""Documents in any format become jobs or problems; every format becomes the same ``Job`` and obeys the same rules.

``documents`` reads text and typed jobs, ``registry`` lists the formats, ``schema``, ``field_types`` and ``names`` describe their fields,
``rules`` and ``limits`` check jobs, ``problems`` collects and renders problems, ``source`` and ``nodes`` read YAML with source locations.
The formats are ``native``, ``kubeflow``, ``batch_job``, ``trainjob``, ``polyaxon_v0``, ``polyaxon_v1`` and ``arena``; ``pods`` reads the
pod templates that most of them contain. ``export`` writes jobs in other formats, ``fields`` describes every format's fields,
``defaults`` and ``queues`` read platform defaults and queues. Import these by their own names, so that reading a document does not
load them.
"""

from __future__ import annotations

from muster_core.models.problem_codes import Code as Code
from muster_formats.documents import (
    Parsed as Parsed,
    parse as parse,
    read_document as read_document,
    read_spec as read_spec,
)
from muster_formats.limits import (
    Limits as Limits,
    kubernetes_limits as kubernetes_limits,
    version_limits as version_limits,
)
from muster_formats.problems import render_problems as render_problems
from muster_formats.rules import MAX_JOB_BYTES as MAX_JOB_BYTES
from muster_formats.source import MAX_BYTES as MAX_BYTES
