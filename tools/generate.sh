#!/bin/sh
# Regenerates everything that is generated from a source in this repository: protobuf and gRPC code of every .proto
# under api/rpc, the deep copies of the API types, their CRDs, REST types of the table of volume fields, and of the CRDs
# and the templates in deploy/ the plain manifest and the chart. The result depends on nothing but the sources, the
# versions pinned in tools/go.mod and the protoc of the host, which is why api/rpc/generated.sum holds the sums of what
# it was given and what it made.
#
# Usage: tools/generate.sh [proto] [api] [rest] [deploy]   regenerate these parts; without an argument all
#        tools/generate.sh check           change nothing; fail and show the difference if a generated file is stale
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/bin/tools
export LC_ALL=C

tool() { # tool <import path>: builds a pinned program into bin/tools; the build cache makes it cheap to repeat.
	go -C "$root/tools" build -o "$bin/" "$1"
}

generate_proto() { # generate_proto <repository>
	command -v protoc >/dev/null || {
		echo "generate: protoc is missing; install the packages protobuf-compiler and libprotobuf-dev" >&2
		exit 1
	}
	tool google.golang.org/protobuf/cmd/protoc-gen-go
	tool google.golang.org/grpc/cmd/protoc-gen-go-grpc
	(
		cd "$1/api/rpc"
		find . -name '*.proto' | sed 's,^\./,,' | sort | while read -r proto; do
			protoc -I . \
				--plugin=protoc-gen-go="$bin/protoc-gen-go" \
				--plugin=protoc-gen-go-grpc="$bin/protoc-gen-go-grpc" \
				--go_out=. --go_opt=paths=source_relative \
				--go-grpc_out=. --go-grpc_opt=paths=source_relative \
				"$proto"
		done
		sums >generated.sum
	)
}

# sums prints those of the .proto files below the working directory and of the code made of them.
sums() { find . -name '*.proto' -o -name '*.pb.go' | sort | xargs sha256sum; }

generate_api() { # generate_api <repository>
	tool sigs.k8s.io/controller-tools/cmd/controller-gen
	(
		cd "$1"
		"$bin/controller-gen" object crd \
			paths=./api/longhorn/v1beta2 output:crd:dir=api/longhorn/v1beta2/crd
	)
}

check() { # Generates in a copy without any generated file, so that leftovers of removed sources show as well.
	copy=$(mktemp -d)
	trap 'rm -rf "$copy"' EXIT
	cp -R "$root/api" "$root/go.mod" "$root/go.sum" "$copy"
	find "$copy/api" \( -name 'zz_generated.*.go' -o -path '*/crd/longhorn.io_*.yaml' \) -delete
	(cd "$copy/api/rpc" && sums >generated.sum) # other releases of protoc make other code of the same sources
	generate_api "$copy"
	diff -r "$root/api" "$copy/api" || {
		echo "generate: generated files are stale; run make generate" >&2
		exit 1
	}
}

mkdir -p "$bin"
[ $# -gt 0 ] || set -- proto api rest deploy
for part; do
	case $part in
	proto) generate_proto "$root" ;;
	api) generate_api "$root" ;;
	rest) go -C "$root" run ./rest/resource/internal/fieldtypes rest/resource/zz_generated.volumefields.go ;; # as deploy
	deploy) go -C "$root" run ./deploy/generate . ;; # whether it is fresh, its own test says
	check) check ;;
	*)
		echo "generate: unknown part $part; known are proto, api, rest, deploy and check" >&2
		exit 2
		;;
	esac
done
