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
	go -C "$root/test/bed" build -buildvcs=false -ldflags "-s -w" -o "$bin/upstream/" tool
	go -C "$root/test/bed" test -c -vet=off -buildvcs=false -ldflags "-s -w" -o "$bin/upstream/upstream.test" ./upstream
	printf ' %s\n' "$(seconds "$began")"
	"$root/tools/unpack.sh" busybox busybox-static
	"$root/tools/unpack.sh" coreutils busybox-static coreutils dash libc6 libacl1 libattr1 libgmp10 libselinux1 libpcre2-8-0
	for folder in "$bin/packages/busybox" "$bin/packages/coreutils"; do
		for applet in $("$folder/bin/busybox" --list); do
			[ -e "$folder/bin/$applet" ] || [ -e "$folder/usr/bin/$applet" ] || ln -s busybox "$folder/bin/$applet"
		done
	done
	go -C "$root/tools" build -buildvcs=false -o "$bin/tools/" ./images
	cd "$root"
	exec "$bin/tools/images" -f test/bed/upstream/Dockerfile -out bin/upstream
}

main
