#!/bin/sh
# Starts one rank for each slot of each host that runs, as horovodrun does with --host-discovery-script.
set -eu
hosts=$("$MUSTER_CONFIG/discover_hosts.sh" | paste -sd, -)
slots=$("$MUSTER_CONFIG/discover_hosts.sh" | awk -F: '{ total += $2 } END { print total }')
echo "hosts $hosts"
exec mpirun --allow-run-as-root -np "$slots" -H "$hosts" python examples/frameworks/horovod/rank.py
