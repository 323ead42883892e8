#!/bin/sh
# Measures volumes against the raw disk and writes a table, also into bench/results.
#
# Usage: tools/bench.sh [flags of bench]      such as -size 4096 (MiB), -time 10s, -dir /srv
set -eu
. "$(dirname "$0")/lib.sh"
cd "$root"

need_go
need_programs fio=fio
tools/build.sh engine >&2
commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
go build -buildvcs=false -ldflags "-X ankole.storage/version.GitCommit=$commit" -o bin/tools/bench ./bench
ANKOLE_ENGINE=$bin/engine exec bin/tools/bench -results bench/results "$@"
