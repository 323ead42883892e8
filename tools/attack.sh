#!/bin/sh
# Attacks a cluster of real processes as somebody without credentials, as root for the sake of another user: every door of
# the cluster, floods of each server. One line for each attempt: "held" or "GOT IN", who, what he wants, what answered him.
# Then the attacks that need a stranger in the middle, or the code of one program alone, by their tests. It fails if somebody
# got in. docs/security.md has the table.
#
# ANKOLE_BIN   programs of another commit: the cluster alone is attacked, since the tests are of this one
set -u
. "$(dirname "$0")/lib.sh"
cd "$root"

# tests: attacker | what he wants | package | test.
tests() {
	cat <<END
stranger to whom a live upgrade is led | the engine's or the target's place, by relay | ./dataplane/daemon | TestStandInIsNotRelayed
stranger at a data port | hear a byte, with a part of a proof or one for something else | ./dataplane/replica | TestInitiationRefused
stranger at a data port | hear a byte, by anything else | ./dataplane/replica | TestStrangersHearNothing
stranger at a data port | keep the engine out by connections | ./dataplane/replica | TestStrangersDoNotKeepTheEngineOut
stranger who has listened | be the engine by what an engine has said | ./dataplane/replica | TestReplayedInitiation
stranger in the middle of a session | change, repeat, reorder or drop frames | ./test/sim | TestAttacker
stranger in the middle of a handshake | be the engine by relay, reflection or replay | ./test/sim | TestRelayedHandshake
stranger in the middle of a handshake | lower the version | ./test/sim | TestLoweredGreeting
holder of a foreign certificate | give orders to an engine | ./dataplane/daemon | TestStrangersAtAControlInterface
anybody, before there is a certificate | be answered by an instance manager | ./instancemanager/daemon | TestNobodyIsAnsweredBeforeThereIsACertificate
holder of the system's certificate | start another program than an engine | ./instancemanager/daemon | TestStartsEnginesAlone
whoever has a host of replicas | plant another LUKS header | ./csi/node | TestHeaderIsAsAsked
author of a StorageClass | mkfs with files of the node (-d DIR) | ./csi/request | TestMkfsArguments
author of a StorageClass | mount options that give rights | ./csi/request | TestMountOptions
author of a StorageClass | another one's content by dataSource | ./csi/request | TestBadParameters
user of a claim | fill disks with snapshots | ./controlplane/volume | TestSnapshotSpace
user of a claim | leave the default jobs | ./controlplane/volume/claim | TestJobsOfAClaim
holder of longhorn-admin | run an image, or use a directory, of his own | ./controlplane/admission | TestOriginsAreKept
END
}

need_go
failed=0
if [ -z "${ANKOLE_BIN:-}" ]; then
	tools/build.sh || exit 1
	export ANKOLE_BIN="$bin"
	tests | {
		while IFS='|' read -r who goal package test; do
			test=$(echo $test)
			out=$(go test -count=1 -v -run "^$test\$" $package 2>&1)
			case "$out" in
			*"--- FAIL: $test "*) verdict="GOT IN" ;;
			*"--- PASS: $test "*) verdict=held ;;
			*) verdict="not tried" ;; # it does not compile, or there is no such test
			esac
			echo "$verdict |$who|$goal| $test"
			[ "$verdict" = held ] || {
				failed=1
				echo "$out" | tail -n 20 >&2
			}
		done
		exit $failed
	} || failed=1
fi
export ANKOLE_ENGINE="$ANKOLE_BIN/engine"
ANKOLE_ATTACK=1 go test -count=1 -run '^TestAttack$' -v ./test/e2e || failed=1
exit $failed
