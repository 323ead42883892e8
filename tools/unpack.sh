#!/bin/sh
# Unpacks packages of the distribution into bin/packages/NAME, without what nobody runs on an image, unless these very
# ones are there. What they are is listed in bin/packages/NAME.list.
#
# Usage: tools/unpack.sh NAME PACKAGE…
set -eu
. "$(dirname "$0")/lib.sh"

main() {
	name=$1
	folder=$bin/packages/$name
	shift
	mkdir -p "$bin/packages/archives"
	wanted=$(echo "$@" | sha256sum)
	[ "$(cat "$folder.key" 2>/dev/null)" != "$wanted" ] || return 0
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || {
		echo "packages of the distribution are needed for bin/packages/${folder##*/}: run this on Debian or Ubuntu" >&2
		return 1
	}
	rm -rf "$folder" "$folder.list"
	mkdir -p "$folder"
	for package; do
		archive=$(find "$bin/packages/archives" -name "${package}_*.deb" | head -n 1)
		[ -n "$archive" ] || {
			(cd "$bin/packages/archives" && apt-get download -qq "$package" 2>/dev/null) || {
				[ "$(id -u)" != 0 ] || apt-get update -qq </dev/null
				(cd "$bin/packages/archives" && apt-get download -qq "$package")
			}
			archive=$(find "$bin/packages/archives" -name "${package}_*.deb" | head -n 1)
		}
		dpkg-deb -x "$archive" "$folder"
		echo "$package $(dpkg-deb -f "$archive" Version) sha256:$(sha256sum <"$archive" | cut -d' ' -f1)" >>"$folder.list"
	done
	for useless in man info locale lintian bash-completion bug doc-base; do rm -rf "$folder/usr/share/$useless"; done
	find "$folder/usr/share/doc" -type f ! -name copyright -delete
	find "$folder/usr/share/doc" -type d -empty -delete
	rm -rf "$folder/usr/lib/x86_64-linux-gnu/gconv" "$folder/etc/cron.d"
	if [ -e "$folder/bin/busybox" ]; then
		for name in sh ls cat dd sleep sha256sum sync cp mv rm mkdir cmp test true false touch head tail wc grep sed awk df \
			od; do
			[ -e "$folder/bin/$name" ] || [ -e "$folder/usr/bin/$name" ] || ln -s busybox "$folder/bin/$name"
		done
	fi
	echo "$wanted" >"$folder.key"
}

main "$@"
