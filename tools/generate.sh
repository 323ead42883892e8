#!/bin/sh
# Regenerates everything that is generated from a source in this repository: protobuf and gRPC code of every .proto
# under api/rpc, the deep copies of the API types, and their CRDs. The result depends on nothing but the sources, the
# versions pinned in tools/go.mod and the protoc of the host, so a test can run it and compare.
#
# Usage: tools/generate.sh [proto] [api]     (no argument: everything)
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/bin/tools
what=${*:-proto api}
export LC_ALL=C

tool() { # tool <import path>: builds a pinned program into bin/tools; the build cache makes it cheap to repeat.
	go -C "$root/tools" build -o "$bin/" "$1"
}

generate_proto() {
	command -v protoc >/dev/null || {
		echo "generate: protoc is missing; install the package protobuf-compiler" >&2
		exit 1
	}
	tool google.golang.org/protobuf/cmd/protoc-gen-go
	tool google.golang.org/grpc/cmd/protoc-gen-go-grpc
	cd "$root/api/rpc"
	find . -name '*.proto' | sed 's,^\./,,' | sort | while read -r proto; do
		protoc -I . \
			--plugin=protoc-gen-go="$bin/protoc-gen-go" \
			--plugin=protoc-gen-go-grpc="$bin/protoc-gen-go-grpc" \
			--go_out=. --go_opt=paths=source_relative \
			--go-grpc_out=. --go-grpc_opt=paths=source_relative \
			"$proto"
	done
}

generate_api() {
	tool sigs.k8s.io/controller-tools/cmd/controller-gen
	cd "$root"
	"$bin/controller-gen" object crd \
		paths=./api/longhorn/v1beta2 output:crd:dir=api/longhorn/v1beta2/crd
}

mkdir -p "$bin"
for part in $what; do
	case $part in
	proto) generate_proto ;;
	api) generate_api ;;
	*)
		echo "generate: unknown part $part; known are proto and api" >&2
		exit 2
		;;
	esac
done
