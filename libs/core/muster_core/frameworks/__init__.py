"""What each framework's replicas are told: names, addresses and environment."""

from muster_core.frameworks.environment import (
    SUPPORTED_FRAMEWORKS,
    Addresses,
    environment,
    listed_replicas,
    membership,
)
from muster_core.frameworks.tensorflow import tf_config

__all__ = [
    "SUPPORTED_FRAMEWORKS",
    "Addresses",
    "environment",
    "listed_replicas",
    "membership",
    "tf_config",
]
