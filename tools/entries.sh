#!/bin/sh
# Runs every entry point of the Makefile in a small form, and the commands of README.md's first steps on the cluster of
# "make run", so that what a user is told to type works.
#
# Usage: tools/entries.sh [entry…]      default: all; "make test", "lint", "e2e" and "soak" run one phase each
set -u
. "$(dirname "$0")/lib.sh"
cd "$root"

need_go
work=$(mktemp -d)
cluster=
bed=$work/bed
# stop ends the cluster as Ctrl-C does, and waits for it. A signal for make would not reach the script that make runs.
stop() {
	kill -TERM $(cat "/proc/$cluster/task/$cluster/children")
	status=0
	wait "$cluster" || status=$?
	cluster=
	return "$status"
}
end() {
	[ -z "$cluster" ] || stop
	[ ! -e "$bed/ready" ] || try_cluster_down
	rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT TERM
# What runs below is judged by the phase around it.
ci=${ANKOLE_CI:-}
unset ANKOLE_CI SIZE KEY
port=$((20000 + $$ % 10000))

# copy makes a clone with the files as they are now, for entries that change the tree. It is made once.
copy() {
	[ ! -d "$work/copy" ] || return 0
	git clone -q --no-checkout "$root" "$work/copy" || return 1
	git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - 2>/dev/null | tar -x -C "$work/copy" &&
		git -C "$work/copy" reset -q
}

try_help() {
	make help >"$work/help" || return 1
	for target in $(sed -n 's/^\([a-z0-9-]*\):.*##.*/\1/p' Makefile); do
		grep -q "make $target " "$work/help" || {
			echo "make help does not tell of $target"
			return 1
		}
		function=try_$(echo "$target" | tr - _)
		command -v "$function" >/dev/null || {
			echo "make $target is not tried: tools/entries.sh has no $function"
			return 1
		}
	done
}

try_build() { make build; }

try_test() { make test PHASES=format; }

try_hunt() { make hunt MINUTES=0 ONLY=sim; }

try_lint() { make -n lint | grep -q 'test.sh format vet staticcheck tidy'; }

try_e2e() { make -n e2e | grep -q "hunt.sh e2e"; }

try_soak() { make -n soak | grep -q "SIZE=night"; }

try_sim() {
	make sim SEEDS=20 FROM=7 >"$work/out" || return 1
	tail -n 1 "$work/out"
	tail -n 1 "$work/out" | grep -q '^20 seeds.* 0 violations$'
}

try_fuzz() { make fuzz FUZZTIME=1s FUZZ=^hostpath:; }

try_attack() { make -n attack | grep -q "tools/attack.sh"; }

try_bench() {
	make bench BENCH="-size 64 -time 200ms -results $work/results" >"$work/out" || return 1
	grep -c '^|' "$work/out"
	[ -n "$(ls "$work/results")" ] || return 1
	git rev-parse --git-dir >/dev/null 2>&1 && [ "$(git rev-parse --is-shallow-repository)" = false ] || {
		echo "no history, so no earlier commit to measure"
		return 0
	}
	make bench COMMIT="$(sed -n 's/.*FirstHandOver = "\(.*\)"/\1/p' test/rig/frozen.go)" \
		BENCH="-size 64 -time 50ms -rounds 1 -only read -results $work/results" >"$work/out" || return 1
	grep -c '^| 3 replicas' "$work/out"
}

try_scale() {
	make scale VOLUMES=2 SCALE=-idle=1s >"$work/out" 2>&1 || {
		tail -n 20 "$work/out"
		return 1
	}
	grep -q '^attached 2 more in ' "$work/out"
}

try_lighthouse() { make -n lighthouse | grep -q "tools/lighthouse.sh"; }

try_generate() {
	command -v protoc >/dev/null || {
		echo "protoc is missing"
		[ -z "$ci" ]
		return
	}
	copy && make -C "$work/copy" generate || return 1
	for f in $(git -C "$work/copy" ls-files --cached --others --exclude-standard); do
		[ ! -f "$f" ] || cmp "$f" "$work/copy/$f" || return 1
	done
}

try_e2e_k8s() { make -n e2e-k8s | grep -q "hunt.sh k8s"; }
try_e2e_upstream() { make -n e2e-upstream | grep -q "hunt.sh upstream"; }

try_images() { make images IMAGES="engine pause" && [ -s bin/images/engine.tar ] && [ -s bin/images/pause.digest ]; }

# One node is enough. What make leaves running, make ends.
try_cluster_up() {
	DIR=$bed NODES=1 NETWORK=10.$((130 + $$ % 120)).0.0 INSTALL=1 make cluster-up &&
		bin/ankole-bed kubectl --kubeconfig "$bed/kubeconfig" get nodes | grep ' Ready ' &&
		bin/ankole-bed kubectl --kubeconfig "$bed/kubeconfig" -n longhorn-system get daemonset longhorn-manager
}

try_cluster_down() { DIR=$bed make cluster-down && [ ! -e "$bed/ready" ]; }

# One program is enough: what make adds is the commit.
try_frozen() {
	copy && make -C "$work/copy" frozen COMMIT="HEAD $work/frozen engine" && "$work/frozen/engine" --help >/dev/null
}

try_clean() {
	copy && mkdir -p "$work/copy/bin" "$work/copy/test/bench/results" "$work/copy/.ankole" && make -C "$work/copy" clean || return 1
	[ ! -e "$work/copy/bin" ] && [ ! -e "$work/copy/test/bench/results" ] && [ -d "$work/copy/.ankole" ] && [ -f "$work/copy/go.mod" ]
}

# steps prints the commands of README.md's first steps that need the cluster, made for this one. What runs until Ctrl-C is
# interrupted after a while. Where kubectl is missing its commands are left out, but not in CI.
steps() {
	without='^$'
	command -v kubectl >/dev/null || [ -n "$ci" ] || without='^kubectl '
	sed -n '/^## First steps/,/^And on the day/s/^    //p' README.md | sed -e "s|\$PWD/.ankole|$work/cluster|g" -e "s|127.0.0.1:9500|127.0.0.1:$port|" \
		-e 's|^\(ankole .* watch [^#]*\)|timeout --preserve-status -s INT 3 \1|' -e 's|^\(ankole .* delete [^#]*\)|\1--yes |' | grep -v "$without"
}

# try_run shows the demonstration, then types what README.md says, then stops the cluster as Ctrl-C does.
try_run() {
	DIR="$work/cluster" API_PORT="$port" make run RUN="--node-network 127.77.7.0 --device-dir $work/dev" >"$work/run" 2>&1 &
	cluster=$!
	tries=3000
	until grep -q '^The cluster is up' "$work/run"; do
		tries=$((tries - 1))
		kill -0 "$cluster" 2>/dev/null && [ "$tries" -gt 0 ] || {
			cat "$work/run"
			return 1
		}
		sleep 0.1
	done
	! grep -q 'demonstration failed' "$work/run" || {
		cat "$work/run"
		return 1
	}
	steps >"$work/steps"
	[ "$(grep -c '^ankole\|^timeout.*ankole\|^curl' "$work/steps")" -ge 9 ] || {
		echo "README.md has lost its first steps:"
		cat "$work/steps"
		return 1
	}
	ANKOLE_SERVER=http://127.0.0.1:$port sh -eux "$work/steps" >"$work/out" 2>&1 || {
		tail -n 40 "$work/out"
		return 1
	}
	stop || {
		tail -n 20 "$work/run"
		return 1
	}
}

main() {
	failed=
	[ $# -gt 0 ] ||
		set -- help build test hunt lint e2e soak sim fuzz bench scale lighthouse run generate e2e-k8s e2e-upstream images cluster-up cluster-down frozen clean
	for entry; do
		began=$(now)
		if "try_$(echo "$entry" | tr - _)" >"$work/log" 2>&1; then
			printf '%-12s ok      %s\n' "$entry" "$(seconds "$began")"
		else
			cat "$work/log"
			printf '%-12s FAILED  %s\n' "$entry" "$(seconds "$began")"
			failed="$failed $entry"
		fi
	done
	[ -z "$failed" ] || {
		echo "failed:$failed"
		exit 1
	}
	exit
}

main "$@"
