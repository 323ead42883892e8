package csi

import (
	"cmp"
	"slices"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// Access modes of volumes as the manager calls them.
const (
	modeOnce    = string(lh.AccessModeReadWriteOnce)
	modeOncePod = string(lh.AccessModeReadWriteOncePod)
	modeMany    = string(lh.AccessModeReadWriteMany)
)

// File systems, the first one where none is asked for.
const (
	fsExt4 = "ext4"
	fsXFS  = "xfs"
)

// fileSystems are those that a volume can be formatted with.
var fileSystems = []string{fsExt4, fsXFS}

// usage is what a capability asks for, judged by itself.
type usage struct {
	block    bool
	fsType   string // empty: not given
	flags    []string
	readOnly bool
	mode     string // access mode of the volume
}

// singlePod: the volume may be published at one target only.
func (u usage) singlePod() bool { return u.mode == modeOncePod }

// use reads a capability.
func use(c *spec.VolumeCapability) (usage, error) {
	var u usage
	if c == nil {
		return u, refuse("no volume capability is given")
	}
	switch {
	case c.GetBlock() != nil:
		u.block = true
	case c.GetMount() != nil:
		u.fsType, u.flags = c.GetMount().GetFsType(), c.GetMount().GetMountFlags()
		if u.fsType != "" && !slices.Contains(fileSystems, u.fsType) {
			return u, refuse("file system %q is not supported: use one of %v", u.fsType, fileSystems)
		}
		u.readOnly = flaggedReadOnly(u.flags)
	default:
		return u, refuse("the volume capability says neither block nor mount")
	}
	switch mode := c.GetAccessMode().GetMode(); mode {
	case spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		u.mode = modeOnce
	case spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		u.mode, u.readOnly = modeOnce, true
	case spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		u.mode = modeOncePod
	case spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		u.mode = modeMany
		if !u.block {
			return u, refuse("a file system on several nodes (ReadWriteMany) needs shares, which this version does not " +
				"have; use ReadWriteOnce, or volumeMode Block with parameter migratable")
		}
	case spec.VolumeCapability_AccessMode_UNKNOWN:
		return u, refuse("the volume capability has no access mode")
	default:
		return u, refuse("access mode %s is not supported: a volume is on one node, or on two while its user moves", mode)
	}
	return u, nil
}

// flaggedReadOnly reports whether mount options make readers of writers. The last one counts.
func flaggedReadOnly(flags []string) (is bool) {
	for _, f := range flags {
		for o := range strings.SplitSeq(f, ",") {
			if o == "ro" || o == "rw" {
				is = o == "ro"
			}
		}
	}
	return is
}

// useAll reads the capabilities of one volume, which must go together.
func useAll(all []*spec.VolumeCapability) (usage, error) {
	var u usage
	if len(all) == 0 {
		return u, refuse("no volume capabilities are given")
	}
	for i, c := range all {
		one, err := use(c)
		if err != nil {
			return u, err
		}
		switch {
		case i == 0:
			u = one
		case one.mode != u.mode:
			return u, refuse("capabilities of access modes %s and %s do not go together", u.mode, one.mode)
		case one.fsType != "" && u.fsType != "" && one.fsType != u.fsType:
			return u, refuse("a volume cannot be %s and %s", u.fsType, one.fsType)
		default:
			u.block = u.block && one.block
			u.readOnly = u.readOnly && one.readOnly
			u.fsType = cmp.Or(u.fsType, one.fsType)
		}
	}
	return u, nil
}

// checkID refuses what is no id, and what cannot be the name of a volume, which would lead out of
// the folder of devices: there is no such volume.
func checkID(id string) error {
	if id == "" {
		return refuse("no volume id is given")
	}
	if naming.CheckName(id) != nil {
		return status.Errorf(codes.NotFound, "there is no volume %q: that is not a name of one", id)
	}
	return nil
}
