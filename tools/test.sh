#!/bin/sh
# Checks everything, phase by phase, and ends with a table: the phases with their times, and every test that was skipped
# with the reason. A failed phase does not keep the later ones from running, but the exit status is then 1.
# docs/testing.md says more.
#
# Usage: tools/test.sh [phase or group…]      default: the group "test"; phase+phase runs them side by side
#
# phases:
#   build            the programs
#   format           gofmt
#   vet              go vet of every module
#   staticcheck      staticcheck of every module, version pinned in tools/go.mod
#   vulnerabilities  govulncheck, where its database can be had
#   tidy             rules about the repository itself
#   lint             the five before, as "make lint"
#   unit             tests of the main module but those below; in CI also without those that a later phase runs whole
#   modules          tests of the nested modules (tools, standalone)
#   e2e              clusters of real processes (test/e2e)
#   race             data path, instance manager and controllers under the race detector
#   entries          every entry point of Makefile and README in a small form
#   sim              simulators of the data path and the control plane: the first seeds, and others with every commit
#   crash            real processes killed, stopped, cut off: every fault on every rig
#   powerloss        disks that lose power at every moment
#   filesystem       file systems on volumes under faults
#   upgrade          live upgrades under load
#   handover         engines that hand over, killed at every step
#   enginekill       the engine under a file system killed, in a cluster
#   stubborn         an engine that ignores every signal, and an instance manager that runs for long
#   mutations        deliberate bugs that a test must notice: the quick ones, and a share of the others with every commit;
#                    small changes all over the packages that decide, some of them with every commit
#   fuzz             every decoder, for some seconds
#
# groups:
#   test             build format vet staticcheck vulnerabilities unit modules tidy e2e
#   slow             sim to fuzz
#   ci               everything, in the size of CI, some phases side by side
#   soak             everything, in the size of a night
#
# SIZE      small, ci or soak: how much a phase does; by default what the group says, and small for "test"
# KEY       a number that chooses what rotates; default: follows from the commit
# PARALLEL  how many test binaries run at once (default 2)
# ANKOLE_GREEN=COMMIT  a commit at which everything passed: phases whose sources have not changed since run small
set -u
. "$(dirname "$0")/lib.sh"
cd "$root"

need_go
export ANKOLE_BIN="$bin" ANKOLE_ENGINE="$bin/engine"
parallel=${PARALLEL:-2}
modules=". standalone tools"
linters="format vet staticcheck vulnerabilities tidy"
slow="sim crash powerloss filesystem upgrade handover enginekill stubborn mutations fuzz"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
: >"$work/skipped"

# budget <phase>: how many seconds it has in the size of CI, on two cores, beside the phase it runs with. With ANKOLE_CI set
# a phase that takes more than twice as long fails: that leaves room for a cold build cache.
budget() {
	case $1 in
	build | stubborn) echo 200 ;;
	staticcheck | unit | sim) echo 300 ;;
	lint | e2e | race | entries | mutations) echo 450 ;;
	modules | handover | crash | powerloss | enginekill | fuzz) echo 240 ;;
	vet | tidy | vulnerabilities | upgrade | filesystem) echo 150 ;;
	*) echo 60 ;;
	esac
}

# of <small> <ci> <soak>: what belongs to the size of this phase.
of() {
	case $form in
	small) echo "$1" ;;
	ci) echo "$2" ;;
	soak) echo "$3" ;;
	esac
}

# gotest <module> <arguments of go test…>: runs tests and reports them. The shell knows no pipefail, hence the file.
gotest() {
	module=$1
	shift
	{
		status=0
		go -C "$module" test -json -timeout "$timeout" -p "$parallel" "$@" </dev/null 2>&1 || status=$?
		echo "$status" >"$work/status.$current"
	} | "$bin/tools/testreport" -skipped "$work/skipped" -failed "$work/failed.$current" -module "$module" -- "$@" || return 1
	return "$(cat "$work/status.$current")"
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
			echo "govulncheck: the database of known vulnerabilities cannot be had" >>"$work/skipped"
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

do_tidy() { gotest . -count=1 ./tidy/...; }

do_lint() { make --no-print-directory lint; }

# Packages that a phase of their own runs whole.
phased='/(sim|test/crash|test/powerloss|test/filesystem|test/upgrade|test/handover|test/mutation)$'

do_unit() {
	packages=$(go list ./... | grep -v -e '/tidy$' -e '/test/e2e') || return 1
	[ "$form" = small ] || packages=$(echo "$packages" | grep -Ev "$phased")
	gotest . $packages
}

do_modules() {
	failed=0
	gotest tools ./... || failed=1
	gotest standalone ./... || failed=1
	return $failed
}

# What users do first always, of the other tests a share with every commit.
do_e2e() {
	[ "$form" != soak ] || export ANKOLE_F4_ROUNDS=100 ANKOLE_F18_REPLICAS=60
	share=${SHARE:-$(of "$((key % 2 + 1))/2" "$((key % 2 + 1))/2" 1/1)}
	always="TestCluster TestCommandLine TestF2"
	names=$(go test -list . ./test/e2e | grep '^Test') || return 1
	chosen=$(for name in $names; do case " $always " in *" $name "*) ;; *) echo "$name" ;; esac done |
		awk -v k="${share%/*}" -v n="${share#*/}" 'NR % n == k % n')
	echo "share $share of the tests that rotate:" $chosen
	parallel=1 gotest . -count=1 -run "^($(echo $always $chosen | tr ' ' '|'))\$" ./test/e2e/...
}

do_entries() { tools/entries.sh; }

# The race detector needs cgo, and programs that are linked without it run as they are. The two halves take turns.
racy_data="./dataplane/loop/... ./dataplane/replica ./dataplane/daemon ./instancemanager/..."
racy_control="./controlplane/..."

do_race() {
	command -v gcc >/dev/null || {
		echo "not checked: the race detector needs a C compiler, and gcc is missing"
		echo "go test -race: gcc is missing" >>"$work/skipped"
		[ -z "${ANKOLE_CI:-}" ]
		return
	}
	failed=0
	if [ "$form" = soak ]; then
		CGO_ENABLED=1 gotest . -race $(go list ./... | grep -v -e '/tidy$' -e '/test/mutation$' -e '/test/e2e$') || failed=1
	else
		half=$(of 0 $((key % 2 + 1)) 0)
		[ "$half" = 2 ] || CGO_ENABLED=1 gotest . -short -race $racy_data || failed=1
		[ "$half" = 1 ] || CGO_ENABLED=1 gotest . -short -race $racy_control || failed=1
		# What tries every step of a history does so in one thread.
		[ "$half" = 1 ] ||
			CGO_ENABLED=1 gotest . -short -race -skip 'Crash|PowerLoss|EveryStep|Fixtures|AfterKill' ./dataplane/chain || failed=1
	fi
	return $failed
}

# The first seeds always, so that what once passed stays so, and others with each commit, so that the histories that were
# played grow with every run. FROM and SEEDS say otherwise.
do_sim() {
	failed=0
	from=${FROM:-$((key * 1000 + 100000))}
	seeds=${SEEDS:-$(of 300 2000 100000)}
	SEEDS=300 FROM=1 gotest . -count=1 ./sim || failed=1
	echo "simulating $seeds seeds from $from on"
	SEEDS=$seeds FROM=$from gotest . -count=1 -run 'TestSeeds$' ./sim || failed=1
	OPERATOR_SEEDS=$(of 4 40 1000) OPERATOR_FROM=$from gotest . -count=1 -run 'TestOperatorWithCrashes$' ./sim || failed=1
	gotest . -count=1 -run 'TestWorld$' ./controlplane/simulated -first "$from" -seeds "$(of 4 40 500)" || failed=1
	[ "$form" != soak ] || gotest . -count=1 ./dataplane/quorum -long || failed=1
	return $failed
}

do_crash() { ROUNDS=$(of "" all 1000) SEED=${SEED:-$key} gotest . -count=1 ./test/crash; }

do_powerloss() {
	deep="-deep -part $(of 1/1 $((key % 3 + 1))/3 1/1)"
	[ "$form" != small ] || deep=
	SEED=${SEED:-$key} gotest . -count=1 ./test/powerloss $deep -trials "$(of 25 50 1000)"
}

do_filesystem() {
	deep="-deep"
	[ "$form" != small ] || deep=
	gotest . -count=1 ./test/filesystem $deep
}

do_upgrade() {
	failed=0
	UPGRADES=$(of 4 15 200) UPGRADES_TABLE="$work/upgrades" gotest . -count=1 ./test/upgrade || failed=1
	[ ! -f "$work/upgrades" ] || cat "$work/upgrades"
	return $failed
}

do_handover() {
	deep="-deep"
	[ "$form" != small ] || deep=
	gotest . -count=1 ./test/handover $deep
}

do_enginekill() {
	failed=0
	ANKOLE_F3_ROUNDS=$(of 4 16 200) gotest . -count=1 -parallel 4 -run 'TestF3Rounds$' ./test/e2e || failed=1
	ANKOLE_FUSE_RESEND=off ANKOLE_F3_ROUNDS=$(of 4 8 100) gotest . -count=1 -parallel 4 -run 'TestF3Rounds$' ./test/e2e || failed=1
	return $failed
}

do_stubborn() {
	failed=0
	ANKOLE_STUBBORN=1 gotest . -count=1 -run 'TestEngineIgnoresStop$' ./test/proxy || failed=1
	ANKOLE_SOAK=$(of 50 200 1000) gotest . -count=1 -run 'TestSoak$' ./instancemanager/daemon || failed=1
	return $failed
}

do_mutations() {
	failed=0
	MUTATIONS=$(of quick "quick,$((key % 4 + 1))/4" all) gotest . -count=1 ./test/mutation || failed=1
	tools/mutate.sh -budget "$(of 20s 45s 0s)" || failed=1
	return $failed
}

# The other targets need Kubernetes' packages compiled once more, for fuzzing, which takes longer than all of these.
do_fuzz() {
	share=$(of 1/8 1/2 1/1)
	FUZZTIME=${FUZZTIME:-$(of 1s 2s 1m)} FUZZ=${FUZZ:-^(dataplane|hostpath|instancemanager|rest/resource)} \
		SHARE=${SHARE:-$((key % ${share#*/} + 1))/${share#*/}} tools/fuzz.sh
}

# cpu prints the seconds of processor time that the children of this shell have used. "times" has to run in this shell.
cpu() {
	times >"$work/times.$current"
	awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); s += t[1] * 60 + t[2] } } END { printf "%d\n", s }' "$work/times.$current"
}

# phase <name>: runs it and notes its line for the summary. It has a shell of its own, for its processor time.
phase() {
	current=$1
	printf '\n== %s\n' "$1"
	began=$(now)
	form=$size
	note=
	budget=$(budget "$1")
	if unchanged "$1"; then
		form=small
		note="  unchanged since $(git rev-parse --short "$ANKOLE_GREEN"), so small"
	fi
	timeout=30m
	[ "$size" != soak ] || timeout=12h
	[ -z "${ANKOLE_CI:-}" ] || timeout=$((budget * 2))s
	if [ -n "${ANKOLE_CI:-}" ] && [ $((began - start)) -gt "$latest" ]; then
		result=FAILED
		note="  not begun: the run has taken more than $((latest / 60000)) minutes"
	elif "do_$1"; then
		result=ok
		[ -z "$note" ] || result=small
	else
		result=FAILED
	fi
	took=$((($(now) - began) / 1000))
	if [ "$took" -gt $((budget * 2)) ] && [ "$size" != soak ]; then
		note="$note  more than twice its budget"
		[ -z "${ANKOLE_CI:-}" ] || result=FAILED
	fi
	cpu >"$work/cpu.$1"
	printf '%-16s %-7s %5d s %6d s of CPU, budget %4d s%s\n' "$1" "$result" "$took" "$(cat "$work/cpu.$1")" "$budget" "$note" |
		tee -a "$work/summary"
}

# latest is when a phase may begin at the latest in CI, in milliseconds of the run: whoever waits for CI gets a table.
latest=$((75 * 60000))

# together <phase+phase…>: runs phases side by side, of which one waits while the other computes, every line with the name of
# its phase. They also show that tests hold on a machine that does other things.
together() {
	for name in $(echo "$1" | tr + ' '); do
		(phase "$name") 2>&1 | tee "$work/log.$name" | sed -u "s/^/$name: /" &
	done
	wait
}

# expand <name…>: their phases, and in size the largest size that one asks for.
expand() {
	for name; do
		case $name in
		test) phases="$phases build $linters unit modules e2e" ;;
		slow) phases="$phases $slow" && group=ci ;;
		ci) phases="$phases build lint unit modules+stubborn e2e+sim race+handover entries crash+mutations \
				powerloss+upgrade filesystem+enginekill fuzz" && group=ci ;;
		soak) phases="$phases build lint unit modules e2e race entries $slow" && group=soak ;;
		*)
			for one in $(echo "$name" | tr + ' '); do
				command -v "do_$one" >/dev/null || {
					echo "unknown phase $one; see tools/test.sh" >&2
					exit 2
				}
			done
			phases="$phases $name"
			;;
		esac
	done
}

# sources <phase>: the packages whose sources, with all that they import, decide what a phase finds, and folders beside
# them after "--". Nothing for a phase that always runs as it is.
sources() {
	case $1 in
	sim) echo ./sim ./controlplane/simulated ;;
	race) echo ./dataplane/... ./instancemanager/... ./controlplane/... ;;
	crash | powerloss | filesystem | upgrade | handover) echo "./test/$1 ./cmd/engine" ;;
	enginekill) echo ./test/e2e ./cmd/... -- standalone deploy ;;
	stubborn) echo ./test/proxy ./instancemanager/daemon ./cmd/engine ./cmd/instance-manager ;;
	mutations) echo ./test/mutation ./dataplane/... ./sim ./controlplane/... ./instancemanager/... ./rest/... ;;
	fuzz) echo ./dataplane/... ./hostpath/... ./instancemanager/... ./rest/resource ;;
	esac
}

# unchanged <phase>: nothing that it tests is different from what it was at ANKOLE_GREEN. By the commit's number every
# eighth run looks away, so that a closure that lacks something is found out.
unchanged() {
	[ -n "${ANKOLE_GREEN:-}" ] && [ $((key % 8)) != 0 ] || return 1
	packages=$(sources "$1")
	[ -n "$packages" ] || return 1
	"$bin/tools/closure" -since "$ANKOLE_GREEN" $packages
}

# failures <phase>: what failed in it, in few lines: tests by name, or else the end of its output.
failures() {
	echo "in phase $1:"
	if [ -s "$work/failed.$1" ]; then
		cat "$work/failed.$1"
	else
		tail -n 12 "$work/log.$1"
	fi | head -n 40 | sed 's/^/  /'
}

# summary of the run, after its last phase. Failures come last: often the end of a log is all that is at hand.
summary() {
	printf '\n== summary\n'
	[ ! -s "$work/skipped" ] || {
		echo "skipped tests, by reason:"
		"$bin/tools/testreport" -table "$work/skipped"
	}
	[ -z "${ANKOLE_CI:-}" ] || {
		echo "what CI cannot have (test/lack/absent.txt):"
		sed -n 's/^\^\{0,1\}\([^#].*\)/  \1/p' test/lack/absent.txt
	}
	cat "$work/summary"
	all=$(echo "$phases" | tr + ' ' | wc -w)
	passed=$(grep -c '^[a-z0-9]* *\(ok\|small\) ' "$work/summary")
	if [ "$passed" -ne "$all" ]; then
		for name in $(sed -n 's/^\([a-z0-9]*\) *FAILED .*/\1/p' "$work/summary"); do
			failures "$name"
		done
		echo "FAIL: $((all - passed)) of $all phases, $(seconds "$start")"
		exit 1
	fi
	echo "PASS: $all phases, $(seconds "$start")"
}

# Read to its end before it runs, so that editing the script does not disturb a run.
main() {
	phases= group=small
	[ $# -gt 0 ] || set -- test
	expand "$@"
	size=${SIZE:-$group}
	case $size in
	small | ci | soak) ;;
	*)
		echo "SIZE=$size is none of small, ci and soak" >&2
		exit 2
		;;
	esac
	key=${KEY:-$((0x$(git rev-parse HEAD | cut -c1-6)))} || exit 2
	start=$(now)
	: >"$work/summary"
	set -- $phases
	echo "size $size, KEY=$key of $(git rev-parse --short HEAD)"
	go -C tools build -buildvcs=false -o "$bin/tools/" ./testreport ./closure || exit 1
	for name; do
		case $name in
		*+*) together "$name" ;;
		*) (phase "$name") 2>&1 | tee "$work/log.$name" ;;
		esac
	done
	summary
	exit
}

main "$@"
