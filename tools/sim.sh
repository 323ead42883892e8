#!/bin/sh
# Simulates the data path. The last line says seeds, operations, faults and violations.
#
#   SEEDS   how many seeds (default 1000), FROM the first one (default 1)
#   SEED    only this one: repeats what a violation reported
set -eu
. "$(dirname "$0")/lib.sh"
cd "$root"

need_go
export SEEDS="${SEEDS:-1000}" FROM="${FROM:-1}" SEED="${SEED:-}"
mkdir -p "$bin"
go test -c -o "$bin/sim.test" ./test/sim
exec "$bin/sim.test" -test.run '^TestSeeds$' -test.timeout 0
