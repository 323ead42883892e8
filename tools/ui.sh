#!/bin/sh
# Builds the web UI into ui/dist, which the manager embeds; docs/design/ui.md says more. Nothing runs while nothing in ui/ has changed.
# Without Node, or where its packages cannot be had, it says so, and the manager serves a page that says so, too.
#
# Usage: tools/ui.sh [packages]      packages: only install what the project needs
set -eu
. "$(dirname "$0")/lib.sh"

# The oldest Node that builds it.
need_major=20 need_minor=19

# without <reason>: goes on without the UI; in CI nothing may be missing.
without() {
	echo "the web UI is not built: $1" >&2
	[ -z "${ANKOLE_CI:-}" ] || exit 1
	exit 0
}

# sources prints a digest of what the build reads.
sources() {
	(cd "$root/ui" && find . \( -path ./node_modules -o -path ./dist -o -name '*.test.ts' -o -name '*.go' \) -prune -o -type f -print |
		LC_ALL=C sort | xargs sha256sum) | sha256sum
}

main() {
	command -v node >/dev/null && command -v npm >/dev/null || without "Node and npm are missing (https://nodejs.org, $need_major.$need_minor or newer)"
	node -e "const [a, b] = process.versions.node.split('.').map(Number);
		process.exit(a > $need_major || (a === $need_major && b >= $need_minor) ? 0 : 1)" ||
		without "Node $need_major.$need_minor or newer is needed, this is $(node --version)"
	lock=$(sha256sum <"$root/ui/package-lock.json")
	if [ "$lock" != "$(cat "$root/ui/node_modules/.lock" 2>/dev/null)" ]; then
		began=$(now)
		printf 'installing the packages of the web UI'
		(cd "$root/ui" && npm ci --no-progress --loglevel=error >/dev/null) || {
			echo
			without "npm cannot install its packages"
		}
		echo "$lock" >"$root/ui/node_modules/.lock"
		printf ' %s\n' "$(seconds "$began")"
	fi
	[ "${1:-}" != packages ] || exit 0
	mkdir -p "$bin"
	sum=$(sources)
	[ "$sum" != "$(cat "$bin/ui.sum" 2>/dev/null)" ] || [ ! -e "$root/ui/dist/index.html.gz" ] || exit 0
	began=$(now)
	printf 'building the web UI'
	(cd "$root/ui" && npm run -s build >"$bin/ui.log" 2>&1) || {
		echo " FAILED" >&2
		cat "$bin/ui.log" >&2
		exit 1
	}
	echo "$sum" >"$bin/ui.sum"
	printf ' %s\n' "$(seconds "$began")"
	exit
}

main "$@"
