#!/bin/sh
# Builds the programs, starts a standalone cluster, shows the demonstration on it and stays in the foreground until
# Ctrl-C or SIGTERM, which stop everything it started.
#
# Usage: tools/run.sh [flags of ankole-standalone]
#
# DEMO=0     only the cluster
# DEMO=only  stop after the demonstration, with its exit status
# DIR        folder of the cluster's state (default .ankole)
# API_PORT   port on 127.0.0.1 of the REST API (default 9500)
# NODES      number of storage nodes (default 3)
set -eu
. "$(dirname "$0")/lib.sh"

demo=${DEMO:-1}
dir=${DIR:-$root/.ankole}
port=${API_PORT:-9500}
export ANKOLE_TOKEN_FILE=$dir/rest-token
cluster=
show=
work=

# end stops the demonstration, then the cluster, and waits for both. The cluster ends when its standard input does: the
# kernel closes the pipe even if this script is killed.
end() {
	status=$?
	trap '' INT TERM
	trap - EXIT
	[ -z "$show" ] || kill -TERM "$show" 2>/dev/null || true
	[ -z "$show" ] || wait "$show" 2>/dev/null || true
	exec 3>&-
	[ -z "$cluster" ] || wait "$cluster" || [ "$status" != 0 ] || status=1
	[ -z "$work" ] || rm -rf "$work"
	exit "$status"
}

# quiet is a stop that the user asked for.
quiet() {
	echo
	exit 0
}

# await_nodes waits until every node takes replicas: the manager is up before it has looked at the disks. A cluster where
# some never do is still a cluster to look at.
await_nodes() {
	tries=600
	until [ "$("$bin/ankole" --server "http://127.0.0.1:$port" node list 2>/dev/null | awk 'NR > 1 && $2 == "yes" && $3 == "yes"' | wc -l)" -ge "${NODES:-3}" ]; do
		kill -0 "$cluster" 2>/dev/null || exit 1
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || {
			echo "not every node takes replicas; see: ankole node list" >&2
			return 0
		}
		sleep 0.1
	done
}

# Read to its end before it runs, so that editing the script does not disturb a cluster that is up.
main() {
	if [ "$demo" != 0 ]; then
		need_programs mkfs.ext4=e2fsprogs debugfs=e2fsprogs || {
			echo "the demonstration needs them; without it: make run DEMO=0" >&2
			exit 1
		}
	fi
	"$root/tools/build.sh"

	work=$(mktemp -d)
	trap end EXIT
	trap quiet INT TERM
	mkfifo "$work/stdin"
	# A session of its own keeps Ctrl-C for this script, which stops things in order.
	setsid "$bin/ankole" standalone --dir "$dir" --nodes "${NODES:-3}" --api-port "$port" \
		--ready-file "$work/ready" --exit-with-stdin "$@" <"$work/stdin" &
	cluster=$!
	exec 3>"$work/stdin"

	until [ -s "$work/ready" ]; do
		kill -0 "$cluster" 2>/dev/null || exit 1
		sleep 0.1
	done
	await_nodes

	if [ "$demo" != 0 ]; then
		echo
		"$bin/ankole" --server "http://127.0.0.1:$port" demo 3>&- &
		show=$!
		result=0
		wait "$show" || result=$?
		show=
		[ "$demo" != only ] || exit "$result"
		[ "$result" = 0 ] || echo "the demonstration failed (status $result); the cluster goes on for a look at it" >&2
		echo
	fi
	cat <<END
The cluster is up. Its web UI: open $dir/ui.html in a browser. In another terminal:
  export PATH=$bin:\$PATH KUBECONFIG=$dir/kubeconfig ANKOLE_TOKEN_FILE=$dir/rest-token
What the five proposals promised, shown on this cluster in two minutes:
  ankole$([ "$port" = 9500 ] || echo " --server http://127.0.0.1:$port") demo proposals
REST API: curl -H @$dir/rest-header http://127.0.0.1:$port/v1
State in $dir. Ctrl-C stops everything; the volumes' data stays.
END
	wait "$cluster"
	exit
}

main "$@"
