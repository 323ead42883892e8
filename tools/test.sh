#!/bin/sh
# The gate: decides whether a change may go in. The same tree gets the same verdict, whatever the hour, the commit's hash or
# the load of the machine; what fails names the command that repeats it. What searches for defects that nobody knows of is
# tools/hunt.sh. docs/design/testing.md says more.
#
# Usage: tools/test.sh [phase…]      default: all of them, one after the other
#
# phases:
#   build            the programs
#   format           gofmt
#   vet              go vet of every module, without what has kubelet linked in, and of the form without older managers
#   staticcheck      staticcheck of the same, version pinned in tools/go.mod
#   tidy             rules about the repository itself
#   unit             tests of the main module that start no cluster and do not measure real time
#   ui               linter, type check and unit tests of the web UI
#   modules          the same of the nested modules (tools, standalone, bed), and the chart through Helm
#   nolegacy         tests of the main module without support for older instance managers
#   simulation       simulators of the data path and of the control plane: the same seeds each time
#   scenarios        clusters of real processes: what users do first, and what was promised to them
#   sanity           the CSI driver on such a cluster: the sanity suite of the CSI project, for file systems
#
# Tests that search, or that measure real time, memory or the kernel's mood, skip in the gate through test/lack
# (lack.RealTime); a phase of the hunt runs them.
set -u
. "$(dirname "$0")/lib.sh"
cd "$root"
need_go

# What is fixed: seeds of property tests, what test/lack leaves out, and where tests have their files.
export ANKOLE_GATE=1 RAPID_SEED=1 RAPID_CHECKS=40
folder=gate
. tools/phases.sh

do_format() {
	files=$(git ls-files --cached --others --exclude-standard '*.go' | while read -r f; do [ ! -f "$f" ] || echo "$f"; done | xargs gofmt -l) || return 1
	[ -z "$files" ] || {
		echo "not formatted; run gofmt -w on: $files"
		return 1
	}
}

# The tag is added to the others of lib.sh: of two flags -tags Go takes the last one.
nolegacy="-tags grpcnotrace,nolegacy"

do_vet() {
	failed=0
	for module in $modules; do
		go -C "$module" vet ./... || failed=1
	done
	go -C test/bed vet $bed || failed=1
	go vet $nolegacy ./... || failed=1
	return $failed
}

do_staticcheck() {
	go -C tools build -buildvcs=false -o "$bin/tools/" honnef.co/go/tools/cmd/staticcheck || return 1
	failed=0
	for module in $modules; do
		(cd "$module" && "$bin/tools/staticcheck" ./...) || failed=1
	done
	(cd test/bed && "$bin/tools/staticcheck" $bed) || failed=1
	return $failed
}

do_tidy() { gotest . -count=1 ./test/tidy/...; }

# Packages that the hunt runs whole, or that have a phase of their own.
elsewhere='/(controlplane/simulated|test/(tidy|sim|e2e|csi|crash|powerloss|filesystem|upgrade|handover|proxy|scale|vm))$'

# Tests collect garbage more seldom than the product: that is a quarter of the processor time of these phases. What
# measures memory is for the hunt.
seldom() { export GOGC=400; }

do_unit() {
	seldom
	keep
	packages=$(go list ./... | grep -Ev "$elsewhere") || return 1
	gotest . $packages
}

do_ui() {
	command -v npm >/dev/null || {
		echo "skipped: Node and npm are missing, so nothing of the web UI is checked"
		[ -z "${ANKOLE_CI:-}" ]
		return
	}
	tools/ui.sh packages || return 1
	failed=0
	for script in lint check test; do
		(cd ui && npm run -s "$script") || failed=1
	done
	return $failed
}

# Go keeps results of tests. It looks for changes in the files of the test's own module, and in no others: tests that read
# those of another module, or have a program read them, run each time.
do_modules() {
	seldom
	keep
	failed=0
	gotest tools -count=1 ./... || failed=1
	gotest standalone $(go -C standalone list ./... | grep -v '/standalonetest$') || failed=1
	gotest test/bed -count=1 $bed || failed=1
	gotest deploy/helm -count=1 ./... || failed=1
	return $failed
}

without="./controlplane/admission ./controlplane/process/instance ./controlplane/node/instancemanager ./manager \
	./controlplane/object/naming ./controlplane/setting ./controlplane/node/settingsync"

do_nolegacy() { seldom && keep && gotest . -short $nolegacy $without; }

do_simulation() { seldom && keep && gotest . ./test/sim ./controlplane/simulated; }

# Deadlines of the product that a busy machine can miss are five times as long. A scenario that fails only because a wait ran
# out is run once more, alone; more than two of them are a failure.
do_scenarios() {
	export LONGEST=60 ANKOLE_TIMES=5 ANKOLE_WAITS="$work/waits" ANKOLE_F4_ROUNDS=2
	parallel=1
	slow=$work/slow.$current
	: >"$slow"
	final=0
	gotest . -count=1 -run "$cut" ./test/crash || final=1
	for pattern in $scenarios; do
		told=$(wc -l <"$slow")
		gotest . -count=1 -parallel 1 -run "$pattern" -skip "$waits" ./test/e2e || [ "$(wc -l <"$slow")" -gt "$told" ] || final=1
	done
	[ -s "$slow" ] || return $final
	[ $final = 0 ] && [ "$(wc -l <"$slow")" -le 2 ] || return 1
	mv "$slow" "$work/again"
	mv "$work/failed.$current" "$work/before"
	while IFS="$(printf '\t')" read -r pattern name what; do
		echo "once more, alone: $name, which waited in vain for: $what"
		gotest . -count=1 -run "$pattern" ./test/e2e || {
			cat "$work/before" >>"$work/failed.$current"
			return 1
		}
		echo "slow: $name, $what" >>"$work/told.$current"
	done <"$work/again"
}

# What users do first, and what was promised to them: create, attach, write, move; snapshots; expansion; clones; a replica,
# an engine, an instance manager, a node and everything killed under I/O; upgrades of engines; eviction; drains;
# wrong input; a folder of an earlier build. What the five proposals promise stands in TestProposalsTour, together on one
# cluster with a storage network and writers.
scenarios='^(TestCluster|TestCommandLine|TestInstalled|TestTakesOverAnEarlierCluster|TestProposalsTour)$
	^TestPlaces$/^F18$'
# Hosts in namespaces: bytes on either network counted; a node that is cut off from the others; a backup and what is restored
# of it; a volume on an image.
cut='^(TestC7|TestD9|TestBackup|TestVolumeOnAnImage)$'
# Nearly a minute until I/O that waits for all replicas ends; 20 s of a frozen API server, during which leases that last five
# times as long do not end; up to a minute until a CronJob's time has come; a minute until a tour gives up; polls of a store
# that are waited for: make hunt runs them.
waits='^TestInstalled$/^F15$|^TestCluster$/^(P7APIServer|F10Clock|BackupS3)$|^TestProposalsTour$/^NotSeen$'

do_sanity() {
	need_sanity || return 1
	ANKOLE_TIMES=5 gotest . -count=1 -run '^TestSanity$/^mount$' ./test/csi
}

# Read to its end before it runs, so that editing the script does not disturb a run.
main() {
	[ $# -gt 0 ] || need_tests
	[ $# -gt 0 ] || set -- build format vet staticcheck tidy unit ui modules nolegacy simulation scenarios sanity
	known "$@"
	start=$(now)
	echo "gate of $(git rev-parse --short HEAD): $*"
	build_report
	[ -z "${ANKOLE_CI:-}" ] || git ls-files -z | "$bin/tools/datefiles" || exit # a fresh clone has the files of now
	run_phases "$@"
	summary "$start"
	exit
}

main "$@"
