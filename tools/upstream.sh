#!/bin/sh
# Builds Kubernetes' own tests of storage drivers into bin/upstream, from Go modules: the tests, what runs several of them at
# once, and the images that they ask for.
#
# Usage: tools/upstream.sh
set -eu
. "$(dirname "$0")/lib.sh"

main() {
	need_go
	began=$(now)
	printf "building Kubernetes' tests of storage drivers (minutes the first time)"
	mkdir -p "$bin/upstream"
	go -C "$root/bed" build -buildvcs=false -ldflags "-s -w" -o "$bin/upstream/" tool
	go -C "$root/bed" test -c -vet=off -buildvcs=false -ldflags "-s -w" -o "$bin/upstream/upstream.test" ./upstream
	printf ' %s\n' "$(seconds "$began")"
	"$root/tools/unpack.sh" busybox busybox-static
	for applet in $("$bin/packages/busybox/bin/busybox" --list); do
		[ -e "$bin/packages/busybox/bin/$applet" ] || ln -s busybox "$bin/packages/busybox/bin/$applet"
	done
	go -C "$root/tools" build -buildvcs=false -o "$bin/tools/" ./images
	cd "$root"
	exec "$bin/tools/images" -f bed/upstream/Dockerfile -out bin/upstream
}

main
