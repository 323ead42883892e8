#!/bin/sh
# Runs every fuzz target of the main module for a while. A failing input is left in testdata/fuzz beside its target, from
# where every later test run repeats it.
#
# FUZZTIME is how long each target runs (default 10s), FUZZ a pattern of <folder>:<target> (default all).
set -eu
. "$(dirname "$0")/lib.sh"
cd "$root"

need_go
failed=
list=$(mktemp)
trap 'rm -f "$list"' EXIT
git ls-files --cached --others --exclude-standard '*_test.go' | grep -v ^standalone/ |
	xargs grep -Ho '^func Fuzz[A-Za-z0-9_]*' | sed 's|/[^/]*:func |:|' | sort | grep -E "${FUZZ:-.}" >"$list"
began_all=$(now)
while IFS=: read -r dir name; do
	began=$(now)
	# Inputs that reach new code are not made smaller for long: that would take most of a short run.
	if out=$(go test -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-10s}" -fuzzminimizetime 1s "./$dir" </dev/null 2>&1); then
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
