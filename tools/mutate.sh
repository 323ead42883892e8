#!/bin/sh
# Tries the tests of packages that decide: small changes, one at a time, each of which a test has to notice. See
# docs/mutation-testing.md.
#
# Usage: tools/mutate.sh [-budget 300s] [-page] [-open] [-record] [-list] [-v] [-file name] [-func name] [package…]
#
# Packages are folders such as controlplane/schedule; default: all that tools/mutate/targets.go lists. With a budget every commit
# tries another share, which SEED (default: the commit) chooses.
set -eu
. "$(dirname "$0")/lib.sh"
cd "$root"

need_go
go -C tools build -buildvcs=false -o "$bin/tools/" ./mutate
seed=${SEED:-$(git rev-parse HEAD 2>/dev/null || echo none)}
exec "$bin/tools/mutate" -root "$root" -seed "$seed" -workers "${PARALLEL:-2}" "$@"
