#!/bin/sh
# Builds the programs into bin/, saying what is built and how long each took.
#
# Usage: tools/build.sh [program…]      default: all of them
#
# VERSION names the release (default dev). The build date is the commit's, so that the same sources give the same
# programs and nothing is linked again for a new day.
set -eu
. "$(dirname "$0")/lib.sh"

programs=${*:-engine instance-manager manager csi ankole ankole-standalone}
mkdir -p "$bin"

ldflags="-X ankole.storage/version.Version=${VERSION:-dev}"
if commit=$(git -C "$root" rev-parse HEAD 2>/dev/null); then
	date=$(TZ=UTC git -C "$root" log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)
	ldflags="$ldflags -X ankole.storage/version.GitCommit=$commit -X ankole.storage/version.BuildDate=$date"
fi

# What the Kubernetes components linked into standalone say of themselves; without it they are v0.0.0-master, which
# clients that check versions refuse. Its symbol tables would be a third of the program.
kubernetes() {
	kube=$(sed -n 's|^[[:space:]]*k8s.io/kubernetes \(v[0-9.]*\)$|\1|p' "$root/standalone/go.mod")
	minor=${kube#v1.}
	base=k8s.io/component-base/version
	echo "-s -w -X $base.gitVersion=$kube -X $base.gitMajor=1 -X $base.gitMinor=${minor%%.*} -X $base.gitTreeState=clean"
}

build() { # build <program>
	more=
	case $1 in
	ankole-standalone | ankole-bed)
		more=$(kubernetes)
		module=standalone
		[ "$1" = ankole-standalone ] || module=bed
		what="$1 (Kubernetes linked in; minutes the first time)"
		;;
	*)
		module=.
		what=$1
		;;
	esac
	began=$(now)
	printf 'building %-18s' "$1"
	[ "$what" = "$1" ] || [ -x "$bin/$1" ] || printf ' %s' "${what#* }"
	if out=$(go -C "$root/$module" build -buildvcs=false -ldflags "$ldflags $more" -o "$bin/$1" "./cmd/$1" 2>&1); then
		printf ' %s\n' "$(seconds "$began")"
	else
		printf ' FAILED\n%s\n' "$out" >&2
		return 1
	fi
}

# A function is read to its end before it runs, so that a script that is edited or checked out meanwhile goes on as it was.
main() {
	need_go
	began_all=$(now)
	for program in $programs; do
		build "$program"
	done
	echo "built in $(seconds "$began_all"): $bin"
	exit
}

main
