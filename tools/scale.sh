#!/bin/sh
# Measures what volumes cost the control plane: how long so many take to be created and attached, requests to the API server
# and processor time of each, and what an idle cluster asks. Managers, API server and nodes are real; instance managers are
# models without processes (package test/scale).
#
# Usage: [VOLUMES=200,300] tools/scale.sh [flags of the test]      such as -idle=60s, -requests=30
set -eu
. "$(dirname "$0")/lib.sh"
cd "$root"

need_go
tools/build.sh >&2
ANKOLE_BIN=$bin exec go test ./test/scale -run '^$' -bench '^BenchmarkVolumes$' -benchtime 1x -timeout 60m -volumes "${VOLUMES:-200,300}" "$@"
