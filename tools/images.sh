#!/bin/sh
# Packs the images of deploy/images/Dockerfile into bin/images, without a container engine: of the programs as they are now,
# and of packages of the distribution. What an image holds is listed beside it.
#
# Usage: tools/images.sh [target…]      default: all of them
set -eu
. "$(dirname "$0")/lib.sh"

# What the toolbox and the image of the CSI driver hold: a shell, and the programs for file systems, with the libraries that they need.
toolbox="busybox-static e2fsprogs libext2fs2 libcom-err2 libss2 libblkid1 libuuid1 xfsprogs libinih1 liburcu8 mount
	libmount1 libselinux1 libpcre2-8-0 util-linux libsmartcols1 libcap-ng0 libc6"

main() {
	need_go
	case " ${*:-toolbox} " in *" toolbox "* | *" csi "*) "$root/tools/unpack.sh" toolbox $toolbox ;; esac
	case " ${*:-pause} " in *" pause "*) go -C "$root/bed" build -buildvcs=false -trimpath -ldflags "-s -w" -o "$bin/ankole-pause" ./cmd/ankole-pause ;; esac
	go -C "$root/tools" build -buildvcs=false -o "$bin/tools/" ./images
	cd "$root"
	exec "$bin/tools/images" "$@"
}

main "$@"
