#!/bin/sh
# The hunt: looks for defects that nobody knows of, with other seeds each time, faults at any moment, planted bugs, fuzzing,
# the race detector. It decides about no change. What it finds goes, with the command that repeats it, to hunt/<time>.txt,
# and from there into docs/finds.md. docs/design/testing.md says more.
#
# Usage: tools/hunt.sh [phase…]      default: all of them, in an order that KEY chooses
#
# phases:
#   build            the programs; always the first
#   vulnerabilities  govulncheck, where its database can be had
#   dead             functions of programs that only tests call
#   rotation         every test of the gate's phase unit, with what the gate leaves out and other seeds of property tests
#   sim              simulators of the data path and the control plane, seeds that were not played before
#   e2e              clusters of real processes: every test
#   csi              the CSI driver on such a cluster: the sanity suite of the CSI project, data, kills
#   k8s              the system installed on a cluster of real nodes: kubelets, containers, images, manifest, chart (as root)
#   upstream         Kubernetes' own tests of storage drivers on such a cluster (as root)
#   race             data path, instance manager and controllers under the race detector
#   crash            real processes killed, stopped, cut off: every fault on every rig
#   powerloss        disks that lose power at every moment
#   filesystem       file systems on volumes under faults
#   upgrade          live upgrades under load
#   handover         engines that hand over, killed at every step
#   enginekill       the engine under a file system killed, in a cluster
#   stubborn         an engine that ignores every signal, and an instance manager that runs for long
#   mutations        planted bugs that a test must notice
#   fuzz             every decoder, for some seconds
#   attack           what strangers do to a cluster, as root
#   ended            scenarios that are ended from outside at any moment: nothing is left
#   vm               encrypted volumes and images with the real dm_crypt, and ublk devices, in an emulated machine
#   entries          every entry point of Makefile and README in a small form
#
# MINUTES   no phase is begun after so many minutes (default: all are)
# SIZE      once (default) or night: how much a phase does
# KEY       a number that chooses seeds, shares and the order; default: the clock's. It is printed
# PARALLEL  how many test binaries run at once (default 2)
set -u
. "$(dirname "$0")/lib.sh"
cd "$root"
need_go
. tools/phases.sh

# of <once> <night>: what belongs to the size of this run.
of() {
	case $size in
	once) echo "$1" ;;
	night) echo "$2" ;;
	esac
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

# do_dead lists functions that no program calls. Not looked at are packages and files for tests, what module standalone calls,
# methods that an interface asks for, and the client of binaries' backup verbs, which waits for backups.
do_dead() {
	go -C tools build -buildvcs=false -o "$bin/tools/" golang.org/x/tools/cmd/deadcode || return 1
	"$bin/tools/deadcode" -tags grpcnotrace ./cmd/... ./test/bench/... >"$work/dead" || return 1
	! grep -vE '^(test|dataplane/disk/memdisk|dataplane/chain/chainref|[a-z/]*test)/|/fake\.go:|: Kinds$|: Unix\.Addr$|backuptarget\.go:' "$work/dead"
}

# What has a phase of its own.
phased='/(test/(tidy|sim|e2e|csi|crash|powerloss|filesystem|upgrade|handover|mutation|vm))$'

do_rotation() {
	failed=0
	RAPID_SEED=$key gotest . -count=1 $(go list ./... | grep -Ev "$phased") || failed=1
	gotest standalone -count=1 ./... || failed=1
	return $failed
}

do_sim() {
	failed=0
	from=${FROM:-$((key * 1000 + 100000))}
	seeds=${SEEDS:-$(of 2000 100000)}
	echo "simulating $seeds seeds from $from on"
	SEEDS=$seeds FROM=$from gotest . -count=1 -run 'TestSeeds$' ./test/sim || failed=1
	OPERATOR_SEEDS=$(of 40 1000) OPERATOR_FROM=$from gotest . -count=1 -run 'TestOperatorWithCrashes$' ./test/sim || failed=1
	gotest . -count=1 -run 'TestWorld$' ./controlplane/simulated -first "$from" -seeds "$(of 40 500)" || failed=1
	[ "$size" != night ] || gotest . -count=1 ./dataplane/quorum -long || failed=1
	return $failed
}

do_e2e() {
	export ANKOLE_TIMES=2
	[ "$size" != night ] || export ANKOLE_F4_ROUNDS=100 ANKOLE_F18_REPLICAS=60
	parallel=1 gotest . -count=1 -run "${RUN:-.}" ./test/e2e || return 1
	[ "$size" = night ] || return 0
	echo "the same with a storage network (C14), but for what has one or none of its own"
	parallel=1 ANKOLE_E2E_NETWORK=1 gotest . -count=1 \
		-skip '^(TestCluster|TestC14|TestC3|TestProposalsTour|TestTakesOverAnEarlierCluster|TestAccess|TestCommandLine)$' ./test/e2e
}

do_csi() {
	need_sanity || return 1
	gotest . -count=1 ./test/csi
}

do_k8s() {
	need_bed || return 1
	need_kernel
	# What is measured at rest takes 4 minutes alone, and stays for the night or for whoever asks for it.
	skip='^(TestUpstream|TestIdleCost)$'
	[ "$size" != night ] && [ -z "${RUN:-}" ] || skip='^TestUpstream$'
	[ "$size" = night ] || timeout=60m
	# To vet a test is to vet all of kubelet first.
	gotest test/bed -count=1 -vet=off -parallel 2 -run "${RUN:-.}" -skip "$skip" ./k8stest || return 1
	[ "$size" = night ] || return 0
	go -C tools build -buildvcs=false -o "$bin/tools/" honnef.co/go/tools/cmd/staticcheck || return 1
	go -C test/bed vet ./... && (cd test/bed && "$bin/tools/staticcheck" ./...)
}

# need_kernel: an emulator, and in bin/packages/vm a kernel for it. Not every machine has their packages; tests say what they
# leave out.
need_kernel() {
	need_programs qemu-system-x86_64=qemu-system-x86 qemu-img=qemu-utils &&
		"$root/tools/unpack.sh" vm "$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)"
	return 0
}

do_vm() {
	need_kernel && need_toolbox
	# Kernels of backports, which have ublk_drv, where the machine's sources of packages have some.
	ublk=$(apt-cache search --names-only '^linux-image-[0-9.]+[+]deb[0-9]+-cloud-amd64$' | cut -d' ' -f1 | sort -V | tail -n 1)
	[ -z "$ublk" ] || "$root/tools/unpack.sh" vm-ublk "$ublk"
	"$root/tools/unpack.sh" shares nfs-ganesha nfs-ganesha-vfs libntirpc4.3 liburcu8 libnfsidmap1 libwbclient0 libkrb5-3 \
		libgssapi-krb5-2 libk5crypto3 libkrb5support0 libkeyutils1 libdbus-1-3 libsystemd0 libcap2 libgcrypt20 liblz4-1 \
		liblzma5 libzstd1 libgpg-error0 libacl1 libbsd0 libmd0 rpcbind libtirpc3 libnsl2 libwrap0 \
		samba samba-common-bin samba-libs libgnutls30 libldap-2.5-0 libldb2 libtalloc2 libtdb1 libtevent0 libtasn1-6 \
		libavahi-client3 libavahi-common3 libicu72 libjansson4 libpam0g libaudit1 libstdc++6 libp11-kit0 libidn2-0 \
		libunistring2 libnettle8 libhogweed6 libgmp10 libffi8 libsasl2-2 zlib1g
	gotest . -count=1 ./test/vm
}

# With SIZE=night the slow cases too.
do_upstream() {
	need_bed && tools/upstream.sh || return 1
	gotest test/bed -count=1 -vet=off -run '^TestUpstream$' ./k8stest
}

do_attack() { (unset ANKOLE_BIN && tools/attack.sh); }

do_entries() { tools/entries.sh; }

# left prints what tests have on the machine, but for this run's own folder.
left() {
	ls -d /tmp/ak.???? 2>/dev/null | grep -vxF "$work"
	for p in /proc/[0-9]*; do
		! tr '\0' '\n' 2>/dev/null <"$p/environ" | grep -s '^[A-Z]*=/tmp/ak\.' | grep -qvF "$work" || echo "process ${p#/proc/}: $(tr '\0' ' ' <"$p/cmdline")"
	done
	losetup -l -n -O NAME,BACK-FILE | sed 's/^/loop device /'
	awk '$5 ~ "^/tmp/" || / - fuse/ { print "mount", $5 }' /proc/self/mountinfo
	ip netns list | sed 's/^/namespace /'
}

# A run gets TERM, as all its processes do, after 1 to 90 s; the last one gets KILL, and the next run removes what it left,
# and nothing of somebody else whose folder has such a name.
do_ended() {
	stranger=$(mktemp -d /tmp/ak.XXXX)
	left >"$work/before"
	failed=0
	for round in $(seq "$(of 5 20)") last; do
		after=$(awk -v k="$key" -v r="$round" 'BEGIN { srand(k + r); print 1 + int(rand() * 90) }')
		setsid sh -c "unset TMPDIR; exec tools/test.sh scenarios" </dev/null >"$work/ended" 2>&1 &
		run=$!
		sleep "$after"
		signal=TERM
		[ "$round" != last ] || signal=KILL
		kill -"$signal" "-$run"
		wait "$run"
		[ "$round" != last ] || (unset TMPDIR && tools/test.sh format) >"$work/ended" 2>&1 || failed=1
		left >"$work/after"
		if ! diff "$work/before" "$work/after"; then
			echo "left by a run that got $signal after $after s; its end:"
			tail -n 5 "$work/ended"
			failed=1
		else
			echo "$signal after $after s: nothing is left"
		fi
	done
	rmdir "$stranger"
	return $failed
}

# The race detector needs cgo, and programs that are linked without it run as they are.
do_race() {
	command -v gcc >/dev/null || {
		echo "not checked: the race detector needs a C compiler, and gcc is missing"
		return 1
	}
	if [ "$size" = night ]; then
		CGO_ENABLED=1 gotest . -race $(go list ./... | grep -v -e '/tidy$' -e '/test/mutation$' -e '/test/e2e$' -e '/test/csi$')
		return
	fi
	failed=0
	CGO_ENABLED=1 gotest . -short -race ./dataplane/loop/... ./dataplane/replica ./dataplane/daemon ./instancemanager/... \
		./controlplane/... || failed=1
	# What tries every step of a history does so in one thread.
	CGO_ENABLED=1 gotest . -short -race -skip 'Crash|PowerLoss|EveryStep|Fixtures|AfterKill' ./dataplane/chain || failed=1
	return $failed
}

do_crash() { ROUNDS=$(of all 1000) SEED=${SEED:-$key} gotest . -count=1 ./test/crash; }

do_powerloss() {
	SEED=${SEED:-$key} gotest . -count=1 ./test/powerloss -deep -part "$(of $((key % 3 + 1))/3 1/1)" -trials "$(of 50 1000)"
}

do_filesystem() { gotest . -count=1 ./test/filesystem -deep; }

do_upgrade() {
	failed=0
	UPGRADES=$(of 15 200) UPGRADES_TABLE="$work/upgrades" gotest . -count=1 ./test/upgrade || failed=1
	[ ! -f "$work/upgrades" ] || cat "$work/upgrades"
	return $failed
}

do_handover() { gotest . -count=1 ./test/handover -deep; }

do_enginekill() { ANKOLE_F3_ROUNDS=$(of 24 300) gotest . -count=1 -parallel 4 -run 'TestF3Rounds$' ./test/e2e; }

do_stubborn() {
	failed=0
	ANKOLE_STUBBORN=1 gotest . -count=1 -run 'TestEngineIgnoresStop$' ./test/proxy || failed=1
	ANKOLE_SOAK=$(of 200 1000) gotest . -count=1 -run 'TestSoak$' ./instancemanager/daemon || failed=1
	return $failed
}

do_mutations() {
	MUTATIONS=$(of "quick,$((key % 4 + 1))/4" all) gotest . -count=1 ./test/mutation
}

# Those of rest need half a minute once, to have Kubernetes' packages compiled for fuzzing. The other targets need more of
# them, which takes longer than all of these.
do_fuzz() {
	FUZZTIME=${FUZZTIME:-$(of 5s 1m)} FUZZ=${FUZZ:-^(dataplane|host/|instancemanager|rest)} tools/fuzz.sh
}

# hunted <name…>: the phases in the order that the key chooses, until the time is over.
hunted() {
	for name in $(printf '%s\n' "$@" | awk -v k="$key" 'BEGIN { srand(k) } { print rand() "\t" $0 }' | sort | cut -f2); do
		if [ -n "${MINUTES:-}" ] && [ $((($(now) - start) / 60000)) -ge "$MINUTES" ]; then
			echo "not begun, for its $MINUTES minutes are over: $name"
			continue
		fi
		run_phases "$name"
	done
}

# finds keeps what failed, with what repeats it.
finds() {
	mkdir -p hunt
	file=hunt/$(date -u +%Y-%m-%dT%H%M%S).txt
	{
		echo "KEY=$key SIZE=$size at $(git rev-parse --short HEAD)"
		for name in $(sed -n 's/^\([a-z0-9]*\) *FAILED .*/\1/p' "$work/summary"); do
			failures "$name"
		done
	} >"$file"
	echo "what was found: $file"
}

# Read to its end before it runs, so that editing the script does not disturb a run.
main() {
	size=${SIZE:-once}
	case $size in
	once) ;;
	night) timeout=12h ;;
	*)
		echo "SIZE=$size is neither once nor night" >&2
		exit 2
		;;
	esac
	[ $# -gt 0 ] || set -- vulnerabilities dead rotation sim e2e csi k8s upstream race crash powerloss filesystem upgrade handover \
		enginekill stubborn mutations fuzz ended vm entries
	known "$@"
	start=$(now)
	key=${KEY:-$((start / 1000))} || exit 2
	export KEY="$key"
	echo "hunt at $(git rev-parse --short HEAD), SIZE=$size KEY=$key: $*"
	build_report
	run_phases build
	hunted "$@"
	! grep -q FAILED "$work/summary" || finds
	summary "$start"
	exit
}

main "$@"
