"""Fixtures with a Docker engine and the images."""

from muster_testing.cluster.fixtures import cluster, cluster_tools
from muster_testing.containers.fixtures import all_images, deployment, engine, images

__all__ = ["all_images", "cluster", "cluster_tools", "deployment", "engine", "images"]
