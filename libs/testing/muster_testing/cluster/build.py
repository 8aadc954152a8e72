"""Builds the missing programs of a cluster: ``make cluster-tools``, or those that are named."""

import sys

from muster_testing.cluster.tools import CONTROL_PLANE, PACKAGES, find
from muster_testing.go_programs import build_programs

if __name__ == "__main__":
    build_programs([(CONTROL_PLANE, name) for name in sys.argv[1:] or PACKAGES if find(name) is None])
