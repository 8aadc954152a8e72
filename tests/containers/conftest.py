"""Fixtures with a Docker engine and the images."""

import sys
from pathlib import Path

from muster_testing.cluster.fixtures import cluster, cluster_tools
from muster_testing.containers.fixtures import all_images, deployment, engine, images

__all__ = ["all_images", "cluster", "cluster_tools", "deployment", "engine", "images"]

sys.path.insert(0, str(Path(__file__).parent))
