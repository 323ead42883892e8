// Package csitest is for tests only: what the tests of the CSI driver's parts share.
package csitest

import (
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Access modes of volume capabilities.
const (
	Once    = spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	OncePod = spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	Readers = spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	Many    = spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
)

// Capability of a file system, or with an empty name of a block volume.
func Capability(fs string, mode spec.VolumeCapability_AccessMode_Mode, flags ...string) *spec.VolumeCapability {
	c := &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{Mode: mode}}
	if fs == "" {
		c.AccessType = &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{FsType: fs, MountFlags: flags}}
	}
	return c
}

// Wants fails the test unless an error has a code.
func Wants(t *testing.T, err error, code codes.Code) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("%v, want code %v", err, code)
	}
}

// Says fails the test unless an error has all of some words.
func Says(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%v does not say %q", err, w)
		}
	}
}
