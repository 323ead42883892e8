// Package enginebinary runs the engine binary of an image on a node, for what has no gRPC way.
//
// Every engine image puts its binary on every node. Started as a process it is an engine or a
// replica; started with a verb it asks a running engine for something, prints the answer and ends.
// Instance managers without a proxy leave a manager no other way to their engines.
//
// The binary runs on the engine's own node, where engine and image are known to be: Local runs it,
// in the manager Pod of that node; Handler lets the managers of other nodes have it run, Remote is
// their side. The two speak HTTPS on the port of the webhooks, and show each other the certificate
// that only managers can read (package admission/serving).
//
//	Remote ── POST /v1/manager/engine-binary, JSON ──> Handler ── Local ──> /var/lib/longhorn/engine-binaries/<image>/longhorn
//
// Only verbs that ask are run (see verbs): nobody can have a process started, or any other program.
package enginebinary

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Path is where Handler is served.
const Path = "/v1/manager/engine-binary"

// Bounds.
const (
	// MaxOutputBytes bounds what a verb may print: 250 snapshots with labels, the longest answer,
	// stay far below.
	MaxOutputBytes = 4 << 20
	// maxMessageBytes is what is kept of standard error: its end, which has the reason.
	maxMessageBytes = 16 << 10
	// maxRequestBytes bounds a request: a verb with its arguments, and labels of a snapshot.
	maxRequestBytes = 256 << 10
	// maxRunning bounds binaries at work on one node; each takes some 20 MiB. A rebuild holds one
	// until it is done.
	maxRunning = 64
)

// Errors of Run, for errors.Is; everything else is a reason to try again.
var (
	// ErrNoBinary: the image's binary is not on the node.
	ErrNoBinary = errors.New("engine binary is not on the node")
	// ErrInvalid: the request makes no sense, or names a verb that is not for asking.
	ErrInvalid = errors.New("invalid order for the engine binary")
	// ErrBusy: too many binaries run on the node.
	ErrBusy = errors.New("too many engine binaries run on the node")
	// ErrOutput: the binary printed more than anybody wants to read.
	ErrOutput = errors.New("engine binary printed too much")
)

// Request is one run of a binary.
type Request struct {
	// Image is the engine image whose binary runs.
	Image string `json:"image"`
	// Volume, Engine and Address name the engine that is asked; all may be empty for verbs that ask
	// none.
	Volume  string `json:"volume,omitempty"`
	Engine  string `json:"engine,omitempty"`
	Address string `json:"address,omitempty"`
	// Verb is the verb with its arguments.
	Verb []string `json:"verb"`
	// Environment is added for this run: credentials of a backup target. Never logged.
	Environment map[string]string `json:"environment,omitempty"`
}

// Result is how it ended.
type Result struct {
	// Output is standard output.
	Output []byte `json:"output"`
	// Message is the end of standard error.
	Message string `json:"message"`
	// Status is the exit status; -1 if a signal ended it.
	Status int `json:"status"`
}

// verbs that ask. Those missing here run a process (controller, replica, sync-agent) or write to
// the node (install).
var verbs = []string{
	"info", "expand", "frontend", "unmap-mark-snap-chain-removed", "add-replica", "verify-rebuild-replica", "ls-replica",
	"rm-replica", "update-replica", "replica-rebuild-status", "snapshots", "backups", "version",
}

// environment that a request may set, as the reference's proxy does.
var environment = []string{
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINTS", "AWS_CERT", "VIRTUAL_HOSTED_STYLE",
	"AWS_SIGN_ACCEPT_ENCODING",
	"CIFS_USERNAME", "CIFS_PASSWORD", "AZBLOB_ACCOUNT_NAME", "AZBLOB_ACCOUNT_KEY", "AZBLOB_ENDPOINT", "AZBLOB_CERT",
	"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY",
}

// check refuses what must not run.
func (r *Request) check() error {
	if r.Image == "" || r.Image == "." || r.Image == ".." || strings.ContainsRune(r.Image, 0) {
		return fmt.Errorf("%w: image %q", ErrInvalid, r.Image)
	}
	if len(r.Verb) == 0 || !slices.Contains(verbs, r.Verb[0]) {
		return fmt.Errorf("%w: %q is none of %s", ErrInvalid, strings.Join(r.Verb, " "), strings.Join(verbs, ", "))
	}
	for name := range r.Environment {
		if !slices.Contains(environment, name) {
			return fmt.Errorf("%w: environment variable %s is none of %s", ErrInvalid, name, strings.Join(environment, ", "))
		}
	}
	return nil
}

// arguments are the binary's: the engine first, then the verb.
func (r *Request) arguments() []string {
	var args []string
	for _, flag := range []struct{ name, value string }{
		{"--volume-name", r.Volume}, {"--engine-instance-name", r.Engine}, {"--url", r.Address},
	} {
		if flag.value != "" {
			args = append(args, flag.name, flag.value)
		}
	}
	return append(args, r.Verb...)
}
