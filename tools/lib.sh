# What the scripts in this folder share. Source it; it sets root (unless the caller did) and bin and turns cgo off, so that programs are static
# and every step uses one build cache, with or without a C compiler on the machine.

root=${root:-$(cd "$(dirname "$0")/.." && pwd)}
bin=$root/bin
export CGO_ENABLED=0
# gRPC's request tracing brings HTML templates, and those make the linker keep every exported method: a fifth of the engine.
# Without the paths of this folder the same sources give the same programs in every folder, and clones share the build cache.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-tags=grpcnotrace -trimpath"

now() { date +%s%N | cut -b1-13; }

# seconds <milliseconds of the beginning>: the time since then, such as 12.3 s.
seconds() {
	ms=$(($(now) - $1))
	printf '%d.%d s' $((ms / 1000)) $((ms % 1000 / 100))
}

need_go() {
	command -v go >/dev/null || {
		echo "Go is missing; install Go $(sed -n 's/^go //p' "$root/go.mod") or newer from https://go.dev/dl/" >&2
		exit 1
	}
}

# need_programs <program=package…>: makes sure that programs of the distribution are there. Installs what is missing as
# root on a machine with apt, and says what to install otherwise.
need_programs() {
	missing=
	for pair; do
		PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%=*}" >/dev/null || missing="$missing ${pair#*=}"
	done
	[ -n "$missing" ] || return 0
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		echo "installing$missing"
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing </dev/null >/dev/null || {
			DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing </dev/null >/dev/null
		}
		return
	fi
	echo "missing:$missing; install with: sudo apt-get install$missing" >&2
	return 1
}

# need_toolbox: what the toolbox and the image of the CSI driver hold, in bin/packages/toolbox: a shell, and the programs for
# file systems and encrypted volumes, with the libraries that they need.
need_toolbox() {
	"$root/tools/unpack.sh" toolbox busybox-static e2fsprogs libext2fs2 libcom-err2 libss2 libblkid1 libuuid1 xfsprogs \
		libinih1 liburcu8 mount libmount1 libselinux1 libpcre2-8-0 util-linux libsmartcols1 libcap-ng0 libc6 \
		cryptsetup-bin libcryptsetup12 libdevmapper1.02.1 libargon2-1 libjson-c5 libssl3 libpopt0 libudev1 libgcc-s1
}

# need_cryptsetup: what the image of the backing image manager holds besides programs of ours, in bin/packages/cryptsetup.
need_cryptsetup() {
	"$root/tools/unpack.sh" cryptsetup cryptsetup-bin libcryptsetup12 libdevmapper1.02.1 libargon2-1 libjson-c5 libssl3 \
		libpopt0 libudev1 libblkid1 libuuid1 libselinux1 libpcre2-8-0 libgcc-s1 libc6
}

# need_tests: what tests want of the distribution. Without it they say what they leave out, and fail in CI.
need_tests() {
	need_programs curl=curl git=git mkfs.ext4=e2fsprogs mkfs.xfs=xfsprogs \
		mkfs.btrfs=btrfs-progs losetup=mount ip=iproute2 nft=nftables prlimit=util-linux qemu-img=qemu-utils \
		nbdinfo=libnbd-bin cryptsetup=cryptsetup-bin chromium=chromium fio=fio kubectl=kubernetes-client || [ -z "${ANKOLE_CI:-}" ]
}

# need_bed: what a cluster of real nodes takes: programs of the distribution, those of the system, images.
need_bed() {
	need_programs containerd=containerd runc=runc nft=nftables mount=mount mkfs.ext4=e2fsprogs nsenter=util-linux ||
		return 1
	[ -x /usr/lib/cni/bridge ] || need_programs /usr/lib/cni/bridge=containernetworking-plugins || return 1
	"$root/tools/build.sh" engine backup-worker backing-image-manager instance-manager manager csi ankole ankole-bed && "$root/tools/images.sh" &&
		"$root/tools/addons.sh"
}
