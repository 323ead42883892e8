#!/bin/sh
# Builds the programs into bin/, saying what is built, every few seconds how far that is, and how long it took.
#
# Usage: tools/build.sh [program…]      default: all of them
#
# VERSION names the release (default dev). The build date is the commit's, so that the same sources give the same
# programs and nothing is linked again for a new day.
set -eu
. "$(dirname "$0")/lib.sh"

programs=${*:-engine backup-worker backing-image-manager instance-manager manager csi ankole ankole-standalone}
mkdir -p "$bin"

ldflags="-X ankole.storage/host/version.Version=${VERSION:-dev}"
if commit=$(git -C "$root" rev-parse HEAD 2>/dev/null); then
	date=$(TZ=UTC git -C "$root" log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)
	ldflags="$ldflags -X ankole.storage/host/version.GitCommit=$commit -X ankole.storage/host/version.BuildDate=$date"
fi

# What the Kubernetes components linked into standalone say of themselves; without it they are v0.0.0-master, which
# clients that check versions refuse. Its symbol tables would be a third of the program.
kubernetes() {
	kube=$(sed -n 's|^[[:space:]]*k8s.io/kubernetes \(v[0-9.]*\)$|\1|p' "$root/standalone/go.mod")
	minor=${kube#v1.}
	base=k8s.io/component-base/version
	echo "-s -w -X $base.gitVersion=$kube -X $base.gitMajor=1 -X $base.gitMinor=${minor%%.*} -X $base.gitTreeState=clean"
}

# names: the packages that "go build -v" has begun with, which it prints one a line. Nothing else that it says is one word.
names() { grep '^[^ #:]*$' "$work/said" | sort -u; }

# pause <seconds>: a sleep that ends with the shell that waits in it.
pause() {
	sleep "$1" >/dev/null 2>&1 &
	sleeping=$!
	wait "$sleeping"
}

# count lists, into $work/all, what is or has been to compile: what the build has begun with and what the build cache lacks.
# It takes seconds, so it is asked only where a build takes long.
count() { # count <module> <ldflags> <packages…>
	module=$1 flags=$2
	shift 2
	go -C "$root/$module" list -deps -buildvcs=false -ldflags "$flags" -f '{{if .Stale}}{{.ImportPath}}{{end}}' "$@" \
		>"$work/stale" 2>/dev/null || return 0
	{ cat "$work/stale" && names; } | sort -u >"$work/counted"
	mv "$work/counted" "$work/all"
}

# follow says every few seconds how far a build is: on a terminal in one line, elsewhere in lines of their own.
follow() { # follow <module> <ldflags> <packages…>
	sleeping=
	counting=
	trap 'kill $sleeping $counting 2>/dev/null; exit' TERM
	pause 5
	count "$@" &
	counting=$!
	before= after='\n'
	[ ! -t 1 ] || before='\r\033[K' after=
	echo
	: >"$work/long"
	while :; do
		begun=$(names | wc -l)
		all=$(cat "$work/all" 2>/dev/null | wc -l)
		case $(tail -n 1 "$work/said") in
		"go: downloading"*) at="downloading modules" ;;
		*)
			if [ "$all" = 0 ]; then
				at="compiling, $begun packages so far"
			elif [ "$begun" -lt "$all" ]; then
				at="compiling, package $begun of $all"
			else
				at="linking"
			fi
			;;
		esac
		printf "$before  %s: %s$after" "$(seconds "$began")" "$at"
		pause 5
	done
}

# build <module> <ldflags> <program…>: one run of Go for all of them, so that what they share is compiled once and one is
# linked while another compiles. The compiler collects garbage less often than by default: a quarter of its time on large
# packages for 100 MB more. That is no setting of the build cache's.
build() {
	module=$1 flags=$2
	shift 2
	began=$(now)
	printf 'building %s' "$*"
	case $* in *ankole-standalone* | *ankole-bed*)
		[ -x "$bin/$1" ] || printf ' (Kubernetes linked in; minutes the first time)'
		;;
	esac
	packages=
	for program; do packages="$packages ./cmd/$program"; done
	rm -f "$work"/*
	: >"$work/said"
	follow "$module" "$flags" $packages &
	following=$!
	status=0
	GOGC=${GOGC:-400} go -C "$root/$module" build -v -buildvcs=false -ldflags "$flags" -o "$bin/" $packages >"$work/said" 2>&1 || status=$?
	stop
	[ ! -e "$work/long" ] || [ ! -t 1 ] || printf '\r\033[K'
	[ ! -e "$work/long" ] || printf ' '
	if [ "$status" = 0 ]; then
		printf ' %s\n' "$(seconds "$began")"
	else
		printf ' FAILED\n'
		grep -v '^[^ #:]*$' "$work/said" >&2 || true
		return 1
	fi
}

# stop ends what says how far a build is.
stop() {
	[ -z "$following" ] || kill "$following" 2>/dev/null || true
	[ -z "$following" ] || wait "$following" 2>/dev/null || true
	following=
}

# A function is read to its end before it runs, so that a script that is edited or checked out meanwhile goes on as it was.
main() {
	need_go
	began_all=$(now)
	following=
	work=$(mktemp -d)
	trap 'stop; rm -rf "$work"' EXIT
	trap 'exit 130' INT TERM
	standalone= bed= ours=
	for program in $programs; do
		case $program in
		ankole-standalone) standalone=$program ;;
		ankole-bed) bed=$program ;;
		*) ours="$ours $program" ;;
		esac
	done
	case " $ours " in *" manager "*) "$root/tools/ui.sh" ;; esac
	[ -z "$ours" ] || build . "$ldflags" $ours
	[ -z "$standalone" ] || build standalone "$ldflags $(kubernetes)" "$standalone"
	[ -z "$bed" ] || build test/bed "$ldflags $(kubernetes)" "$bed"
	echo "built in $(seconds "$began_all"): $bin"
	exit
}

main
