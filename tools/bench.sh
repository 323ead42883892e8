#!/bin/sh
# Measures volumes against the raw disk and writes a table, also into test/bench/results. With COMMIT: beside those of the engine as
# it was at an earlier commit, in alternating rounds.
#
# Usage: [COMMIT=…] tools/bench.sh [flags of bench]      such as -size 4096 (MiB), -time 10s, -dir /srv; -rounds 9, -only 'random read'
#        tools/bench.sh -backups                         backups and restores, beside a copy and restic; also with COMMIT
#        tools/bench.sh -images                          the download of a backing image, beside curl and sha512sum
set -eu
. "$(dirname "$0")/lib.sh"
cd "$root"

need_go
case " $* " in
*" -backups "*) need_programs restic=restic ;;
*" -images "*) need_programs curl=curl ip=iproute2 ;;
*) [ -n "${COMMIT:-}" ] || need_programs fio=fio ;;
esac
tools/build.sh engine >&2
[ -z "${COMMIT:-}" ] || {
	case " $* " in
	*" -backups "*) frozen=$(tools/frozen.sh "$COMMIT" "" engine backup-worker) ;;
	*) frozen=$(tools/frozen.sh "$COMMIT" "" engine) ;;
	esac
	set -- -against "$frozen/engine" "$@"
}
commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
go build -buildvcs=false -ldflags "-X ankole.storage/host/version.GitCommit=$commit" -o bin/tools/bench ./test/bench
ANKOLE_ENGINE=$bin/engine exec bin/tools/bench -results test/bench/results "$@"
