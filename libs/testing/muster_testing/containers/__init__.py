"""Containers for tests: a Docker engine, images that are built without a network, and the deployment of ``compose.yaml``.

``engine`` finds or starts an engine. ``base`` and ``images`` make what the deployment needs: the images of Muster, and those of NATS,
Jaeger and Prometheus from programs of this machine. ``deployment`` runs ``compose.yaml``. ``fixtures`` are for a ``conftest.py``.
"""

from muster_testing.containers.deployment import Deployment as Deployment
from muster_testing.containers.engine import Engine as Engine, EngineError as EngineError
