package node

import (
	"slices"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"k8s.io/mount-utils"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
)

// spellings of a parameter that CreateVolume takes for the same one.
func spellings(name string) []string {
	return []string{name, strings.ToLower(name), strings.ToUpper(name), strings.ToUpper(name[:1]) + name[1:]}
}

// TestContextInAnyCase: the node finds each of its parameters by the names by which CreateVolume
// finds it, and judges none of the others.
func TestContextInAnyCase(t *testing.T) {
	plain := &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{Mode: csitest.Once},
		AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}}}
	for i := range spellings("x") {
		given := map[string]string{"NumberOfReplicas": "as an older version took it"}
		for name, value := range map[string]string{request.ParamFSType: "xfs", request.ParamMkfs: "-m bigtime=0",
			request.ParamEncrypted: "true",
			request.ParamExclusive: "true"} {
			given[spellings(name)[i]] = value
		}
		s, err := judgeStaging(&spec.NodeStageVolumeRequest{VolumeId: "vol-1", StagingTargetPath: "/staging",
			VolumeCapability: plain, VolumeContext: given})
		if err != nil || !s.encrypted || s.keyless == nil || s.FSType != request.XFS ||
			!slices.Equal(s.mkfs, []string{"-m", "bigtime=0"}) {
			t.Errorf("%v: %+v, %v", given, s, err)
		}
		if w, err := request.ParseContext(given); err != nil || !w.Exclusive {
			t.Errorf("%v: %+v, %v", given, w, err)
		}
	}
}

// TestExclusiveInAnyCase: a second Pod is refused, however the class spells the parameter.
func TestExclusiveInAnyCase(t *testing.T) {
	t.Parallel()
	b := newBed(t, 64*mib)
	c := csitest.Capability("", csitest.Once)
	b.must(b.stage(c), b.publish(1, c, false))
	for _, name := range spellings(request.ParamExclusive) {
		b.context = map[string]string{name: "true"}
		csitest.Wants(t, b.publish(2, c, false), codes.FailedPrecondition)
	}
}

// TestEncryptedByAnyone: a volume that the class, however it spells the parameter, or the manager
// says is encrypted is used with a key, or not at all.
func TestEncryptedByAnyone(t *testing.T) {
	type says struct{ class, manager map[string]string }
	told := map[string]says{"by the manager": {manager: map[string]string{request.ContextEncrypted: "true"}},
		"by the manager, whatever the class says": {map[string]string{request.ParamEncrypted: "false"},
			map[string]string{request.ContextEncrypted: "true"}}}
	for _, name := range spellings(request.ParamEncrypted) {
		told["by the class as "+name] = says{class: map[string]string{name: "true"}}
	}
	for name, by := range told {
		for _, k := range kinds {
			if k.fs == request.XFS {
				continue // nothing here depends on the kind of file system
			}
			t.Run(name+", "+k.name, func(t *testing.T) {
				t.Parallel()
				b := newEncryptedBed(t, k.size)
				c, key := csitest.Capability(k.fs, csitest.Once), b.secrets
				b.context, b.given, b.secrets = by.class, by.manager, nil
				before := b.sum("80M")
				csitest.Wants(t, b.stage(c), codes.InvalidArgument)
				csitest.Wants(t, b.publish(1, c, false), codes.InvalidArgument)
				b.locked()
				if b.sum("80M") != before {
					t.Error("the volume was changed without a key")
				}
				b.secrets = key
				b.must(b.stage(c))
				if m, err := b.mapping(b.volume); err != nil || m == nil || !m.luks {
					t.Fatalf("no mapper device: %+v, %v", m, err)
				}
				b.must(b.publish(1, c, false))
				b.content(k.fs, 1, "behind the header")
				b.must(b.unpublish(1), b.unstage())
				b.locked()
			})
		}
	}
}

// noted notes the arguments of the program mount, and mounts without a security context, which a
// kernel without SELinux refuses.
type noted struct {
	mount.Interface
	arguments []string
}

func (m *noted) Mount(source, target, fs string, options []string) error {
	m.arguments = append(m.arguments, strings.Join(mount.MakeMountArgs(source, target, fs, options), " "))
	return m.Interface.Mount(source, target, fs, slices.DeleteFunc(slices.Clone(options),
		func(o string) bool { return strings.HasPrefix(o, "context=") }))
}

// TestSecurityContext: the SELinux context of a Pod, which the kubelet gives as a mount option
// since the CSIDriver object says seLinuxMount, reaches the program mount as it is, with its comma.
func TestSecurityContext(t *testing.T) {
	const label = `context="system_u:object_r:container_file_t:s0:c10,c20"`
	for _, k := range kinds[:2] {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, k.size)
			m := &noted{Interface: b.mounts}
			b.mounts = m
			c := csitest.Capability(k.fs, csitest.Once, label, "noatime")
			b.must(b.stage(c), b.stage(c), b.publish(1, c, false))
			if len(m.arguments) != 2 || !strings.Contains(m.arguments[0], label) ||
				!strings.Contains(m.arguments[0], "-t "+k.fs+" ") || !strings.Contains(m.arguments[0], "noatime") {
				t.Errorf("staged and published by mount %q", m.arguments)
			}
			if at, err := mounted(b.staging()); err != nil || len(at) != 1 || at[0].ReadOnly() {
				t.Errorf("staged is %+v, %v", at, err)
			}
		})
	}
}
