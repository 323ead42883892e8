# What the gate (tools/test.sh) and the hunt (tools/hunt.sh) share: phases of tests, one after the other, and the table at
# the end. Source it after lib.sh and in the root of the repository; the caller has a function do_<phase> for each phase.
#
# PARALLEL  how many test binaries run at once (default 2)
# folder    four letters: tests work in /tmp/ak.$folder, unless another run does (default: a new folder)

export ANKOLE_BIN="$bin" ANKOLE_ENGINE="$bin/engine"
parallel=${PARALLEL:-2}
# timeout guards against tests that hang, which are then ended with the stacks of their goroutines. It judges nothing else.
timeout=30m
modules=". standalone tools deploy/helm"
# What of module test/bed does not have kubelet linked in. The rest takes minutes to compile and to check: phase k8s does both.
bed="./cmd/ankole-pause ./host ./networks ./node ./plan"
. tools/sweep.sh
sweep_dead
# Everything that a test makes is in this folder, or is a process that has its name in its environment: what is left at the
# end of a run is found by it. The path is short because those of sockets, which have at most 107 bytes, begin with it.
work=/tmp/ak.${folder:-}
[ -n "${folder:-}" ] && mkdir -m 700 "$work" 2>/dev/null || work=$(mktemp -d /tmp/ak.XXXX)
echo $$ >"$work/pid"
export TMPDIR="$work" ANKOLE_RUN="$work/run"
trap 'status=$?; trap "" INT TERM; sweep "$work"; exit $status' EXIT
trap 'exit 130' INT TERM
: >"$work/skipped"
: >"$work/summary"

# keep lets Go keep the results of tests, for other clones of the repository as well: their names of files begin alike. Of
# a program that a test starts Go knows nothing; so the name of their folder is that of its content.
keep() {
	tree=$work/tree
	programs=$work/$(find "$bin" -maxdepth 1 -type f -perm -u+x | sort | xargs cat | sha256sum | cut -c -12)
	ln -sfn "$root" "$tree"
	ln -sfn "$bin" "$programs"
	export ANKOLE_BIN="$programs" ANKOLE_ENGINE="$programs/engine"
}

# gotest <module> <arguments of go test…>: runs tests and reports them. The shell knows no pipefail, hence the file. Vetting
# is phase vet's: "go test" would look with other checks, and for those at every package of Kubernetes once more.
gotest() {
	module=$1
	shift
	{
		status=0
		cd "${tree:-$root}/$module" && go test -json -vet=off -timeout "$timeout" -p "$parallel" "$@" </dev/null 2>&1 || status=$?
		echo "$status" >"$work/status.$current"
	} | "$bin/tools/testreport" -longest "${LONGEST:-0}" -skipped "$work/skipped" -failed "$work/failed.$current" -waits "${ANKOLE_WAITS:-$work/none}" \
		-slow "$work/slow.$current" -module "$module" -- "$@" || return 1
	return "$(cat "$work/status.$current")"
}

# need_sanity builds the sanity suite of the CSI project, a program of module tools, so that its framework stays out of the
# main module.
need_sanity() {
	go -C tools build -buildvcs=false -o "$bin/tools/" github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity || return 1
	export ANKOLE_TOOLS="$bin/tools"
}

do_build() { tools/build.sh; }

# cpu prints the seconds of processor time that the children of this shell have used. "times" has to run in this shell.
cpu() {
	times >"$work/times.$current"
	awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); s += t[1] * 60 + t[2] } } END { printf "%d\n", s }' "$work/times.$current"
}

# phase <name>: runs it and notes its line for the summary. It has a shell of its own, for its processor time. How long it
# took is told and fails nothing.
phase() {
	current=$1
	printf '\n== %s\n' "$1"
	began=$(now)
	result=FAILED
	! "do_$1" || result=ok
	took=$((($(now) - began) / 1000))
	cpu >"$work/cpu.$1"
	printf '%-16s %-7s %5d s %6d s of CPU\n' "$1" "$result" "$took" "$(cat "$work/cpu.$1")" | tee -a "$work/summary"
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

# known <name…>: ends the script where one of them is no phase.
known() {
	for name; do
		command -v "do_$name" >/dev/null || {
			echo "unknown phase $name; see $0" >&2
			exit 2
		}
	done
}

# build_report builds what reports on tests, and what lets their results count in another clone.
build_report() { go -C tools build -buildvcs=false -o "$bin/tools/" ./testreport ./datefiles || exit 1; }

# run_phases <name…>: one after the other. A failed one does not keep the later ones from running.
run_phases() {
	for name; do
		(phase "$name") 2>&1 | tee "$work/log.$name"
	done
}

# summary <milliseconds of the beginning>: what was skipped, the table, what failed. Failures come last: often the end of a
# log is all that is at hand. The exit status is 1 where a phase failed.
summary() {
	printf '\n== summary\n'
	[ ! -s "$work/skipped" ] || {
		echo "skipped tests, by reason:"
		"$bin/tools/testreport" -table "$work/skipped"
		facts=$("$bin/tools/testreport" -table "$work/skipped" -facts docs/facts)
		[ -z "$facts" ] || printf 'facts that nothing held in this run (docs/facts):\n%s\n' "$facts"
	}
	[ -z "${ANKOLE_CI:-}" ] || {
		echo "what CI cannot have (test/lack/absent.txt):"
		sed -n 's/^\^\{0,1\}\([^#].*\)/  \1/p' test/lack/absent.txt
	}
	cat "$work/summary"
	cat "$work"/told.* 2>/dev/null
	all=$(wc -l <"$work/summary")
	passed=$(grep -c '^[a-z0-9]* *ok ' "$work/summary")
	if [ "$passed" -ne "$all" ]; then
		for name in $(sed -n 's/^\([a-z0-9]*\) *FAILED .*/\1/p' "$work/summary"); do
			failures "$name"
		done
		echo "FAIL: $((all - passed)) of $all phases, $(seconds "$1")"
		exit 1
	fi
	echo "PASS: $all phases, $(seconds "$1")"
}
