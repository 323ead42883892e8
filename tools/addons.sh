#!/bin/sh
# Builds what Kubernetes clusters have beside Kubernetes itself, for the cluster bed: the sidecars of CSI drivers, the
# controller of volume snapshots with its kinds, the server of names; and a database as a workload. Images go to
# bin/images, the rest to bin/addons.
#
# Usage: tools/addons.sh
set -eu
. "$(dirname "$0")/lib.sh"

# PostgreSQL as the distribution has it, and the libraries that it needs.
postgres="busybox-static postgresql-15 postgresql-client-15 libpq5 libzstd1 liblz4-1 libxml2 libpam0g libssl3
	libgssapi-krb5-2 zlib1g libldap-2.5-0 libicu72 libsystemd0 libc6 liblzma5 libaudit1 libkrb5-3 libk5crypto3 libcom-err2
	libkrb5support0 libsasl2-2 libgnutls30 libstdc++6 libgcc-s1 libcap2 libgcrypt20 libgpg-error0 libcap-ng0 libkeyutils1
	libp11-kit0 libidn2-0 libunistring2 libtasn1-6 libnettle8 libhogweed6 libgmp10 libffi8 libreadline8 libtinfo6 tzdata"

# folder <module>: where its source is.
folder() { go -C "$root/test/bed/addons" list -m -f '{{.Dir}}' "$1"; }

main() {
	need_go
	began=$(now)
	printf 'building sidecars and the server of names (minutes the first time)'
	snapshots=$bin/addons/snapshots
	mkdir -p "$snapshots"
	go -C "$root/test/bed/addons" build -buildvcs=false -ldflags "-s -w" -o "$bin/addons/" tool ./cmd/...
	printf ' %s\n' "$(seconds "$began")"
	kinds=$(folder github.com/kubernetes-csi/external-snapshotter/client/v8)/config/crd
	cp "$kinds"/snapshot.storage.k8s.io_*.yaml "$snapshots/"
	chmod u+w "$snapshots"/* # files of the module cache are read-only
	controller=$(folder github.com/kubernetes-csi/external-snapshotter/v8)/deploy/kubernetes/snapshot-controller
	image=$(sed -n 's/.*"\(.*snapshot-controller:[^"]*\)".*/\1/p' "$root/test/bed/addons/Dockerfile")
	for part in rbac setup; do
		sed "s|image: .*snapshot-controller:.*|image: $image|" "$controller/$part-snapshot-controller.yaml" \
			>"$snapshots/$part.yaml"
	done
	"$root/tools/unpack.sh" postgres $postgres
	go -C "$root/tools" build -buildvcs=false -o "$bin/tools/" ./images
	cd "$root"
	exec "$bin/tools/images" -f test/bed/addons/Dockerfile
}

main
