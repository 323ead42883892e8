#!/bin/sh
# Runs every fuzz target of the main module for a while. A failing input is left in testdata/fuzz beside its target, from
# where every later test run repeats it.
#
# FUZZTIME is how long each target runs (default 10s), FUZZ a pattern of <folder>:<target> (default all), SHARE=2/4 takes
# the second of every four of them.
set -eu
. "$(dirname "$0")/lib.sh"
cd "$root"

# fuzz <folder> <target>. Inputs that reach new code are not made smaller for long: that would take most of a short run.
fuzz() {
	go test -run '^$' -fuzz "^$2\$" -fuzztime "${FUZZTIME:-10s}" -fuzzminimizetime 1s "./$1" </dev/null 2>&1
}

# outran tells, from the output, a run that failed only because its time was over before a worker had stopped: go test then
# reports a failure without an input.
outran() {
	case $1 in
	*"Failing input written"*) return 1 ;;
	*"context deadline exceeded"*) return 0 ;;
	esac
	return 1
}

# try <folder> <target>: fuzz, again where the run was outrun, a few times. The output is in out.
try() {
	for _ in 1 2 3; do
		out=$(fuzz "$1" "$2") && return 0
		outran "$out" || return 1
	done
	return 1
}

need_go
failed=
list=$(mktemp)
trap 'rm -f "$list"' EXIT
git ls-files --cached --others --exclude-standard '*_test.go' | grep -v ^standalone/ |
	xargs grep -Ho '^func Fuzz[A-Za-z0-9_]*' | sed 's|/[^/]*:func |:|' | sort | grep -E "${FUZZ:-.}" | awk -v share="${SHARE:-1/1}" 'BEGIN { split(share, s, "/") } NR % s[2] == s[1] % s[2]' >"$list"
[ -s "$list" ] || {
	echo "no target matches FUZZ=${FUZZ:-.} SHARE=${SHARE:-1/1}"
	exit 1
}
began_all=$(now)
while IFS=: read -r dir name; do
	began=$(now)
	if try "$dir" "$name"; then
		printf '%-50s ok      %s  %s\n' "$dir $name" "$(seconds "$began")" "$(printf '%s\n' "$out" | sed -n 's/.*execs: \([0-9]*\).*/\1 inputs/p' | tail -n 1)"
	else
		printf '%-50s FAILED\n%s\n' "$dir $name" "$out"
		failed="$failed $name"
	fi
done <"$list"
echo "$(wc -l <"$list") targets in $(seconds "$began_all")"
[ -z "$failed" ] || {
	echo "failed:$failed"
	exit 1
}
