#!/bin/sh
# Packs the images of deploy/images/Dockerfile into bin/images, without a container engine: of the programs as they are now,
# and of packages of the distribution. What an image holds is listed beside it.
#
# Usage: tools/images.sh [target…]      default: all of them
set -eu
. "$(dirname "$0")/lib.sh"

main() {
	need_go
	case " ${*:-toolbox} " in *" toolbox "* | *" csi "*) need_toolbox ;; esac
	case " ${*:-backing-image-manager} " in *" backing-image-manager "*) need_cryptsetup ;; esac
	case " ${*:-pause} " in *" pause "*) go -C "$root/test/bed" build -buildvcs=false -ldflags "-s -w" -o "$bin/ankole-pause" ./cmd/ankole-pause ;; esac
	go -C "$root/tools" build -buildvcs=false -o "$bin/tools/" ./images
	cd "$root"
	exec "$bin/tools/images" "$@"
}

main "$@"
