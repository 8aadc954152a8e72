"""What TensorFlow's dialects agree on: the container that decides, and the port that its replicas meet at."""

from __future__ import annotations

from muster_core.models import Port

CONTAINER = "tensorflow"
"""The container whose exit code is the replica's."""

PORT = Port(name="tfjob-port", number=2222)
"""The port of a template that names none."""
