#!/bin/sh
# Starts a Kubernetes cluster of real nodes on this machine, with the images of the system on every node, and leaves it
# running; or ends it, and removes all that it has on the machine. docs/guide/kubernetes.md says how it works.
#
# Usage: tools/cluster.sh up|down
#
# DIR      folder of the cluster's state (default .ankole-bed); not below /var or /run. It stays, with the nodes' disks
# NODES    number of nodes (default 3)
# NETWORK  its /16 network (default 10.213.0.0)
# INSTALL  1: installs the system as well
set -eu
. "$(dirname "$0")/lib.sh"

dir=${DIR:-$root/.ankole-bed}
network=${NETWORK:-10.213.0.0}

bed() { "$bin/ankole-bed" --dir "$dir" --nodes "${NODES:-3}" --network "$network" "$@"; }

# idle: no bed runs in the folder. One that does holds a lock on a file of it, and all that this script writes and builds, the
# file "ready", the log and the programs, is in use by it.
idle() { [ ! -e "$dir/lock" ] || flock --nonblock --shared "$dir/lock" true; }

up() {
	[ "$(id -u)" = 0 ] || {
		echo "a cluster of real nodes makes namespaces, bridges and control groups: run this as root" >&2
		exit 1
	}
	idle || {
		echo "a bed runs in $dir (process $(cat "$dir/lock")); end it first with make cluster-down, or choose another" \
			"DIR and NETWORK" >&2
		exit 1
	}
	need_bed
	mkdir -p "$dir"
	rm -f "$dir/ready"
	set --
	for archive in "$bin"/images/*.tar; do
		case $archive in
		*/pause.tar | */postgres.tar) ;; # every node gets the one by --pause-image; the other is a workload of tests
		*) set -- "$@" --image "$archive" ;;
		esac
	done
	setsid "$bin/ankole-bed" --dir "$dir" --nodes "${NODES:-3}" --network "$network" up --ready-file "$dir/ready" \
		--dns "$bin/addons/ankole-dns" --pause-image "$bin/images/pause.tar" "$@" </dev/null >"$dir/up.log" 2>&1 &
	cluster=$!
	until [ -s "$dir/ready" ]; do
		kill -0 "$cluster" 2>/dev/null || {
			cat "$dir/up.log" >&2
			exit 1
		}
		sleep 0.1
	done
	cat "$dir/up.log"
	[ "${INSTALL:-0}" != 1 ] || "$bin/ankole-bed" kubectl --kubeconfig "$dir/kubeconfig" apply --server-side \
		-f "$bin/addons/snapshots" -f "$root/deploy/longhorn.yaml"
}

# Read to its end before it runs, so that editing the script does not disturb it.
main() {
	case ${1:-} in
	up) up ;;
	down)
		need_go
		[ -x "$bin/ankole-bed" ] || "$root/tools/build.sh" ankole-bed
		bed down
		;;
	*)
		echo "usage: tools/cluster.sh up|down" >&2
		exit 2
		;;
	esac
	exit
}

main "$@"
