#!/bin/sh
# Checks everything, phase by phase, and ends with a table of phases and times. A failed phase does not keep the later
# ones from running, but the exit status is then 1.
#
# Usage: tools/test.sh [phase…]      default: all but "slow"
#
#   build            the programs
#   format           gofmt
#   vet              go vet of every module
#   staticcheck      staticcheck of every module, version pinned in tools/go.mod
#   vulnerabilities  govulncheck, where its database can be had
#   unit             tests of the main module but those below
#   modules          tests of the nested modules (tools, standalone)
#   tidy             rules about the repository itself
#   e2e              clusters of real processes (test/e2e)
#   slow             more seeds of the simulator, more crashes, more losses of power, more upgrades, file systems on volumes
#
# PARALLEL bounds how many test binaries run at once (default 2).
set -u
. "$(dirname "$0")/lib.sh"
cd "$root"

need_go
export ANKOLE_BIN="$bin" ANKOLE_ENGINE="$bin/engine"
parallel=${PARALLEL:-2}
modules=". standalone tools"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# gotest <module> <arguments of go test…>: runs tests and reports them. The shell knows no pipefail, hence the file.
gotest() {
	module=$1
	shift
	go -C tools build -buildvcs=false -o "$bin/tools/" ./testreport || return 1
	{
		status=0
		go -C "$module" test -json -timeout 30m -p "$parallel" "$@" </dev/null 2>&1 || status=$?
		echo "$status" >"$work/status"
	} | "$bin/tools/testreport" || return 1
	return "$(cat "$work/status")"
}

do_build() { tools/build.sh; }

do_format() {
	files=$(git ls-files --cached --others --exclude-standard '*.go' | while read -r f; do [ ! -f "$f" ] || echo "$f"; done | xargs gofmt -l) || return 1
	[ -z "$files" ] || {
		echo "not formatted; run gofmt -w on: $files"
		return 1
	}
}

do_vet() {
	failed=0
	for module in $modules; do
		go -C "$module" vet ./... || failed=1
	done
	return $failed
}

do_staticcheck() {
	go -C tools build -buildvcs=false -o "$bin/tools/" honnef.co/go/tools/cmd/staticcheck || return 1
	failed=0
	for module in $modules; do
		(cd "$module" && "$bin/tools/staticcheck" ./...) || failed=1
	done
	return $failed
}

do_vulnerabilities() {
	database=$(go env GOVULNDB)
	database=${database:-https://vuln.go.dev}
	case $database in
	http*)
		curl -fsS -m 10 -o /dev/null "$database/index/db.json" 2>"$work/curl" || {
			echo "not checked: the database of known vulnerabilities cannot be had ($(cat "$work/curl")); name a copy in GOVULNDB=file:///…"
			return 0
		}
		;;
	esac
	go -C tools build -buildvcs=false -o "$bin/tools/" golang.org/x/vuln/cmd/govulncheck || return 1
	failed=0
	for module in . standalone; do
		"$bin/tools/govulncheck" -C "$module" -db "$database" ./... || failed=1
	done
	return $failed
}

do_unit() {
	packages=$(go list ./... | grep -v -e '/tidy$' -e '/test/e2e') || return 1
	gotest . $packages
}

do_modules() {
	failed=0
	gotest tools ./... || failed=1
	gotest standalone ./... || failed=1
	return $failed
}

do_tidy() { gotest . -count=1 ./tidy/...; }

do_e2e() {
	[ -d test/e2e ] || {
		echo "there is no test/e2e"
		return 1
	}
	parallel=1 gotest . -count=1 ./test/e2e/...
}

do_slow() {
	failed=0
	# Other seeds with each commit, so that the histories that were played grow with every run; FROM and SEEDS say otherwise.
	from=${FROM:-$((0x$(git rev-parse --short=6 HEAD | cut -c1-6) * 1000 + 100000))}
	echo "simulating ${SEEDS:=8000} seeds from $from on"
	SEEDS=$SEEDS FROM=$from gotest . -count=1 -timeout 40m ./sim || failed=1
	UPGRADES=50 UPGRADES_TABLE="$work/upgrades" gotest . -count=1 -timeout 8m -run 'TestUpgradesUnderLoad$' ./test/upgrade || failed=1
	[ ! -f "$work/upgrades" ] || cat "$work/upgrades"
	ROUNDS=210 gotest . -count=1 ./test/crash || failed=1
	gotest . -count=1 ./test/powerloss -deep -trials 150 || failed=1
	gotest . -count=1 ./test/filesystem -deep || failed=1
	gotest . -count=1 ./test/handover -deep || failed=1
	ANKOLE_F3_ROUNDS=100 gotest . -count=1 -parallel 4 -run 'TestF3Rounds$' ./test/e2e || failed=1
	ANKOLE_FUSE_RESEND=off ANKOLE_F3_ROUNDS=20 gotest . -count=1 -parallel 4 -run 'TestF3Rounds$' ./test/e2e || failed=1
	ANKOLE_STUBBORN=1 gotest . -count=1 -run 'TestEngineIgnoresStop$' ./test/proxy || failed=1
	ANKOLE_SOAK=1000 gotest . -count=1 -run 'TestSoak$' ./instancemanager/daemon || failed=1
	MUTATIONS=all gotest . -count=1 -run 'TestMutations$' ./test/mutation || failed=1
	# The others need Kubernetes' packages compiled once more, for fuzzing, which takes longer than all of these.
	FUZZTIME=${FUZZTIME:-3s} FUZZ=${FUZZ:-^(dataplane|hostpath|instancemanager|rest/resource)} tools/fuzz.sh || failed=1
	return $failed
}

failures=0
phase() { # phase <name>
	printf '\n== %s\n' "$1"
	began=$(now)
	if "do_$1"; then
		result=ok
	else
		result=FAILED
		failures=$((failures + 1))
	fi
	printf '%-16s %-7s %s\n' "$1" "$result" "$(seconds "$began")" | tee -a "$work/summary"
}

# Read to its end before it runs, so that editing the script does not disturb a run.
main() {
	[ $# -gt 0 ] || set -- build format vet staticcheck vulnerabilities unit modules tidy e2e
	for name; do
		command -v "do_$name" >/dev/null || {
			echo "unknown phase $name; see tools/test.sh" >&2
			exit 2
		}
	done
	start=$(now)
	for name; do
		phase "$name"
	done
	printf '\n== summary\n'
	cat "$work/summary"
	if [ "$failures" -gt 0 ]; then
		echo "FAIL: $failures of $# phases, $(seconds "$start")"
		exit 1
	fi
	echo "PASS: $# phases, $(seconds "$start")"
	exit
}

main "$@"
