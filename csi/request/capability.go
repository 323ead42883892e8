package request

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
	ModeOnce    = string(lh.AccessModeReadWriteOnce)
	ModeOncePod = string(lh.AccessModeReadWriteOncePod)
	ModeMany    = string(lh.AccessModeReadWriteMany)
)

// File systems, the first one where none is asked for.
const (
	Ext4 = "ext4"
	XFS  = "xfs"
)

// fileSystems are those that a volume can be formatted with.
var fileSystems = []string{Ext4, XFS}

// Usage is what a capability asks for, judged by itself.
type Usage struct {
	Block    bool
	FSType   string   // empty: not given
	Flags    []string // mount options
	ReadOnly bool
	Mode     string // access mode of the volume
}

// SinglePod: the volume may be published at one target only.
func (u Usage) SinglePod() bool { return u.Mode == ModeOncePod }

// UsageOf reads a capability. An error is INVALID_ARGUMENT.
func UsageOf(c *spec.VolumeCapability) (Usage, error) {
	var u Usage
	if c == nil {
		return u, Refuse("no volume capability is given")
	}
	switch {
	case c.GetBlock() != nil:
		u.Block = true
	case c.GetMount() != nil:
		u.FSType, u.Flags = c.GetMount().GetFsType(), c.GetMount().GetMountFlags()
		if u.FSType != "" && !slices.Contains(fileSystems, u.FSType) {
			return u, Refuse("file system %q is not supported: use one of %v", u.FSType, fileSystems)
		}
		u.ReadOnly = flaggedReadOnly(u.Flags)
	default:
		return u, Refuse("the volume capability says neither block nor mount")
	}
	switch mode := c.GetAccessMode().GetMode(); mode {
	case spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		u.Mode = ModeOnce
	case spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		u.Mode, u.ReadOnly = ModeOnce, true
	case spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		u.Mode = ModeOncePod
	case spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		u.Mode = ModeMany
		if !u.Block {
			return u, Refuse("a file system on several nodes (ReadWriteMany) needs shares, which this version does not " +
				"have; use ReadWriteOnce, or volumeMode Block with parameter migratable")
		}
	case spec.VolumeCapability_AccessMode_UNKNOWN:
		return u, Refuse("the volume capability has no access mode")
	default:
		return u, Refuse("access mode %s is not supported: a volume is on one node, or on two while its user moves", mode)
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

// UsageOfAll reads the capabilities of one volume, which must go together. An error is
// INVALID_ARGUMENT.
func UsageOfAll(all []*spec.VolumeCapability) (Usage, error) {
	var u Usage
	if len(all) == 0 {
		return u, Refuse("no volume capabilities are given")
	}
	for i, c := range all {
		one, err := UsageOf(c)
		if err != nil {
			return u, err
		}
		switch {
		case i == 0:
			u = one
		case one.Mode != u.Mode:
			return u, Refuse("capabilities of access modes %s and %s do not go together", u.Mode, one.Mode)
		case one.FSType != "" && u.FSType != "" && one.FSType != u.FSType:
			return u, Refuse("a volume cannot be %s and %s", u.FSType, one.FSType)
		default:
			u.Block = u.Block && one.Block
			u.ReadOnly = u.ReadOnly && one.ReadOnly
			u.FSType = cmp.Or(u.FSType, one.FSType)
		}
	}
	return u, nil
}

// CheckID refuses what is no id, and what cannot be the name of a volume, which would lead out of
// the folder of devices: INVALID_ARGUMENT, and NOT_FOUND, since there is no such volume.
func CheckID(id string) error {
	if id == "" {
		return Refuse("no volume id is given")
	}
	if naming.CheckName(id) != nil {
		return status.Errorf(codes.NotFound, "there is no volume %q: that is not a name of one", id)
	}
	return nil
}
