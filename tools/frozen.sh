#!/bin/sh
# Builds programs as they were at an earlier commit of this project, for tests of what meets an older version: live
# upgrades, managers of one age with engines of another. What is built already is kept: a second call costs nothing.
#
# Usage: tools/frozen.sh COMMIT [DIR [program…]]
#
#   COMMIT    anything git can name; give a full hash in tests, so that they mean the same tomorrow
#   DIR       where the programs go; default bin/frozen/<full hash>. One commit per directory.
#   program   of cmd/; default: engine instance-manager manager
#
# Prints the directory. Exit status 3: this clone cannot give the commit (it is shallow, or no clone at all), which says
# nothing about the commit; 1: it does not build.
set -eu
. "$(dirname "$0")/lib.sh"

unavailable() {
	echo "frozen: $1" >&2
	exit 3
}

# resolve <commit>: the full hash, or the reason why there is none.
resolve() {
	command -v git >/dev/null || unavailable "git is missing; install git"
	git -C "$root" rev-parse --git-dir >/dev/null 2>&1 || unavailable "$root is no clone, so it has no earlier commits; clone the repository"
	git -C "$root" rev-parse --verify --quiet "$1^{commit}" && return
	[ "$(git -C "$root" rev-parse --is-shallow-repository)" = false ] ||
		unavailable "commit $1 is not in this clone, which is shallow; get the rest with: git fetch --unshallow"
	unavailable "commit $1 is not in this clone; if it exists elsewhere: git fetch"
}

# unpack <hash>: the sources of the commit, in $work/src.
unpack() {
	[ ! -d "$work/src" ] || return 0
	mkdir "$work/src"
	git -C "$root" archive --format=tar -o "$work/src.tar" "$1"
	tar -xf "$work/src.tar" -C "$work/src"
	rm "$work/src.tar"
}

# build <hash> <program>
build() {
	[ -d "$work/src/cmd/$2" ] || {
		echo "frozen: commit $1 has no program $2 (no folder cmd/$2)" >&2
		return 1
	}
	date=$(TZ=UTC git -C "$root" log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd "$1")
	v=ankole.storage/host/version
	[ -d "$work/src/host/version" ] || v=ankole.storage/version
	go -C "$work/src" build -buildvcs=false -o "$work/$2" \
		-ldflags "-X $v.Version=frozen-$(echo "$1" | cut -b1-12) -X $v.GitCommit=$1 -X $v.BuildDate=$date" "./cmd/$2" >&2
	mv "$work/$2" "$dir/$2" # whole or not at all, should two of us build it
}

main() {
	[ $# -ge 1 ] || {
		sed -n '/^# Usage/,/^set/s/^# \{0,1\}//p' "$0" >&2
		exit 2
	}
	hash=$(resolve "$1")
	dir=${2:-$bin/frozen/$hash}
	[ $# -lt 2 ] && shift || shift 2
	[ $# -gt 0 ] || set -- engine instance-manager manager
	mkdir -p "$dir"
	dir=$(cd "$dir" && pwd)
	[ "$(cat "$dir/commit" 2>/dev/null || echo "$hash")" = "$hash" ] || {
		echo "frozen: $dir holds programs of commit $(cat "$dir/commit"); use another directory" >&2
		exit 1
	}
	work=
	trap '[ -z "$work" ] || rm -rf "$work"' EXIT
	trap 'exit 130' INT TERM
	for program; do
		[ ! -x "$dir/$program" ] || continue
		need_go
		[ -n "$work" ] || work=$(mktemp -d "$dir/.build.XXXXXX")
		began=$(now)
		unpack "$hash"
		build "$hash" "$program"
		echo "$hash" >"$dir/commit"
		echo "built $program of $(echo "$hash" | cut -b1-12) in $(seconds "$began")" >&2
	done
	echo "$dir"
	exit
}

main "$@"
