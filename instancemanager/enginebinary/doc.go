// Package enginebinary runs the engine binary of an image for controllers, for what has no gRPC
// way.
//
// Every engine image puts its binary on every node. Started as a process it is an engine or a
// replica; started with a verb it asks a running engine for something, or says what it is, prints
// the answer and ends. Instance managers without a proxy leave controllers no other way to their
// engines.
//
// Only verbs that ask are run (see verbs): no process is started, and no other program.
package enginebinary

import (
	"path"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginebinaryv1 "ankole.storage/api/rpc/enginebinary/v1"
)

// Bounds.
const (
	// MaxOutputBytes bounds what a verb may print: 250 snapshots with labels, the longest answer,
	// stay far below.
	MaxOutputBytes = 4 << 20
	// maxMessageBytes is what is kept of standard error: its end, which has the reason.
	maxMessageBytes = 16 << 10
	// maxRunning bounds binaries at work on one node; each takes some 20 MiB. A rebuild holds one
	// until it is done.
	maxRunning = 64
)

// program is the name of the binary in the folder of an image.
const program = "longhorn"

// verbs that ask. Those missing here run a process (controller, replica, sync-agent) or write to
// the node (install).
var verbs = []string{
	"info", "expand", "frontend", "unmap-mark-snap-chain-removed", "add-replica", "verify-rebuild-replica", "ls-replica",
	"rm-replica", "update-replica", "replica-rebuild-status", "snapshots", "backups", "version",
}

// environment that a request may set, as the reference's proxy does, and keys of encrypted backups.
var environment = []string{
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINTS", "AWS_CERT",
	"VIRTUAL_HOSTED_STYLE",
	"AWS_SIGN_ACCEPT_ENCODING",
	"CIFS_USERNAME", "CIFS_PASSWORD", "AZBLOB_ACCOUNT_NAME", "AZBLOB_ACCOUNT_KEY", "AZBLOB_ENDPOINT", "AZBLOB_CERT",
	"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "BACKUP_ENCRYPTION_KEY", "BACKUP_ENCRYPTION_OLD_KEYS",
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, "invalid order for the engine binary: "+format, args...)
}

// check refuses what must not run. folders have a folder for each image.
func check(r *enginebinaryv1.RunRequest, folders []string) error {
	binary := r.GetBinary()
	if binary != path.Clean(binary) || !slices.Contains(folders, path.Dir(path.Dir(binary))) ||
		path.Base(binary) != program || strings.ContainsRune(binary, 0) {
		return invalid("%q is not the binary of an engine image, %s", binary, path.Join(folders[0], "IMAGE", program))
	}
	if len(r.GetVerb()) == 0 || !slices.Contains(verbs, r.GetVerb()[0]) {
		return invalid("%q is none of %s", strings.Join(r.GetVerb(), " "), strings.Join(verbs, ", "))
	}
	for name := range r.GetEnvironment() {
		if !slices.Contains(environment, name) {
			return invalid("environment variable %s is none of %s", name, strings.Join(environment, ", "))
		}
	}
	return nil
}

// arguments are the binary's: the engine first, then the verb.
func arguments(r *enginebinaryv1.RunRequest) []string {
	var args []string
	for _, flag := range []struct{ name, value string }{
		{"--volume-name", r.GetVolume()}, {"--engine-instance-name", r.GetEngine()}, {"--url", r.GetAddress()},
	} {
		if flag.value != "" {
			args = append(args, flag.name, flag.value)
		}
	}
	return append(args, r.GetVerb()...)
}
