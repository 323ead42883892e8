#!/bin/sh
# Has Lighthouse judge every page of the web UI on a cluster as "make run" starts one, and prints a table and what is not as it wants. The
# reports go to test/bench/results/lighthouse. npx fetches Lighthouse, so a registry must be in reach.
#
# Usage: tools/lighthouse.sh
set -eu
. "$(dirname "$0")/lib.sh"
cd "$root"

version=13.5.0
cluster=
work=$(mktemp -d)
end() {
	status=$?
	[ -z "$cluster" ] || kill -TERM "$cluster" 2>/dev/null || true
	[ -z "$cluster" ] || wait "$cluster" || true
	rm -rf "$work"
	exit "$status"
}
trap end EXIT
trap 'exit 130' INT TERM

main() {
	need_programs chromium=chromium
	command -v npx >/dev/null || {
		echo "npx is missing; it comes with Node and npm (https://nodejs.org)" >&2
		exit 1
	}
	port=$((20000 + $$ % 10000))
	DEMO=0 DIR=$work/cluster API_PORT=$port tools/run.sh --node-network 127.78.8.0 --device-dir "$work/dev" >"$work/run" 2>&1 &
	cluster=$!
	until grep -q '^The cluster is up' "$work/run"; do
		kill -0 "$cluster" 2>/dev/null || {
			cat "$work/run" >&2
			exit 1
		}
		sleep 0.1
	done
	reports=$root/test/bench/results/lighthouse
	mkdir -p "$reports"
	cd ui
	URL=http://127.0.0.1:$port TOKEN=$(cat "$work/cluster/rest-token") CHROME=$(command -v chromium) VERSION=$version REPORTS=$reports \
		node browser/lighthouse.mjs
	exit
}

main "$@"
