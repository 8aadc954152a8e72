"""Builds the missing programs of the container tests: ``make container-tools``."""

from muster_testing.containers.tools import missing
from muster_testing.go_programs import build_programs

if __name__ == "__main__":
    build_programs(missing())
