package admission

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// reads notes which kinds are read live.
type reads struct {
	client.Reader
	kinds []string
}

func (r *reads) note(o any) {
	switch o.(type) {
	case *v1beta2.Setting:
		r.kinds = append(r.kinds, "setting")
	case *v1beta2.SettingList:
		r.kinds = append(r.kinds, "settings")
	case *v1beta2.EngineImage:
		r.kinds = append(r.kinds, "image")
	case *v1beta2.BackupTarget:
		r.kinds = append(r.kinds, "target")
	case *v1beta2.ReplicaList:
		r.kinds = append(r.kinds, "replicas")
	case *v1beta2.EngineList:
		r.kinds = append(r.kinds, "engines")
	case *v1beta2.Volume:
		r.kinds = append(r.kinds, "volume")
	case *v1beta2.VolumeList:
		r.kinds = append(r.kinds, "volumes")
	case *v1beta2.NodeList:
		r.kinds = append(r.kinds, "nodes")
	case *corev1.Node:
		r.kinds = append(r.kinds, "node of Kubernetes")
	}
}

func (r *reads) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	r.note(o)
	return r.Reader.Get(ctx, key, o, opts...)
}

func (r *reads) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	r.note(list)
	return r.Reader.List(ctx, list, opts...)
}

// TestWhatIsReadForAChange: what the controllers do at each attachment, and for each replica, asks
// the API server for nothing; a user's change for what its rules look at. Reading more made the
// webhooks most of the requests of an idle cluster.
func TestWhatIsReadForAChange(t *testing.T) {
	volume := func(edit func(*v1beta2.VolumeSpec)) *v1beta2.Volume {
		return named(&v1beta2.Volume{}, "v", nil, func(v *v1beta2.Volume) {
			v.Spec = v1beta2.VolumeSpec{Size: 4 << 20, NumberOfReplicas: 3, Image: "image", BackupTargetName: "default",
				SnapshotMaxCount: 250}
			if edit != nil {
				edit(&v.Spec)
			}
		})
	}
	attachment := func(volume string) *v1beta2.VolumeAttachment {
		return named(&v1beta2.VolumeAttachment{}, "a", nil, func(a *v1beta2.VolumeAttachment) { a.Spec.Volume = volume })
	}
	replica := named(&v1beta2.Replica{}, "r", nil, func(r *v1beta2.Replica) { r.Spec.VolumeName = "v" })
	for name, c := range map[string]struct {
		plural       string
		old, changed client.Object
		want         []string
	}{
		"a new volume": {"volumes", nil, volume(nil), []string{"settings", "settings", "image", "target"}},
		"attached":     {"volumes", volume(nil), volume(func(s *v1beta2.VolumeSpec) { s.NodeID = "n1" }), nil},
		"attached, strict-local": {"volumes",
			volume(func(s *v1beta2.VolumeSpec) { s.DataLocality = v1beta2.DataLocalityStrictLocal }),
			volume(func(s *v1beta2.VolumeSpec) {
				s.DataLocality, s.NodeID = v1beta2.DataLocalityStrictLocal, "n1"
			}), []string{"replicas"}},
		"another image": {"volumes", volume(nil), volume(func(s *v1beta2.VolumeSpec) { s.Image = "x" }), []string{"image"}},
		"another target": {"volumes", volume(nil), volume(func(s *v1beta2.VolumeSpec) { s.BackupTargetName = "x" }),
			[]string{"target"}},
		"grown": {"volumes", volume(nil), volume(func(s *v1beta2.VolumeSpec) { s.Size *= 2 }), []string{"replicas", "nodes"}},
		"shrunk": {"volumes", volume(nil), volume(func(s *v1beta2.VolumeSpec) { s.Size /= 2 }),
			[]string{"replicas", "engines"}},
		"another limit": {"volumes", volume(nil), volume(func(s *v1beta2.VolumeSpec) { s.SnapshotMaxCount = 9 }),
			[]string{"engines"}},
		"a new replica": {"replicas", nil, replica, nil},
		"a changed one": {"replicas", replica, replica, nil},
		"a new volume, no image": {"volumes", nil, volume(func(s *v1beta2.VolumeSpec) {
			s.DataSource = "vol://v/x" // names no volume
		}), []string{"settings", "settings", "target"}},
		"another size for snapshots": {"volumes", volume(nil), volume(func(s *v1beta2.VolumeSpec) { s.SnapshotMaxSize = 9 }),
			[]string{"engines"}},
		"changed, strict-local": {"volumes",
			volume(func(s *v1beta2.VolumeSpec) { s.DataLocality = v1beta2.DataLocalityStrictLocal }),
			volume(func(s *v1beta2.VolumeSpec) { s.DataLocality = v1beta2.DataLocalityStrictLocal }), nil},
		"a new engine of nothing": {"engines", nil, named(&v1beta2.Engine{}, "e", nil, func(e *v1beta2.Engine) {
			e.Spec.VolumeName = "x"
		}), []string{"volume"}},
		"a new attachment":     {"volumeattachments", nil, attachment("v"), []string{"volume"}},
		"one of no volume":     {"volumeattachments", nil, attachment(""), nil},
		"a changed attachment": {"volumeattachments", attachment("v"), attachment("v"), []string{"volume"}},
		"a new node":           {"nodes", nil, named(nodeWith(), "n", nil, nil), readForNodes},
		"a setting":            {"settings", nil, valueOf("auto-salvage", "true"), nil},
		"one of two settings":  {"settings", nil, valueOf(setting.DisableSnapshotPurge, "true"), []string{"setting"}},
		"the network":          {"settings", nil, valueOf("storage-network", ""), []string{"volumes"}},
		"the data path":        {"settings", nil, valueOf("default-data-path", "/a"), []string{"nodes"}},
		"the data engine":      {"settings", nil, valueOf("v1-data-engine", "true"), []string{"engines"}},
		"a new engine": {"engines", nil, named(&v1beta2.Engine{}, "e", nil, func(e *v1beta2.Engine) {
			e.Spec.VolumeName = "v"
		}), []string{"volume", "engines"}},
	} {
		image := "image"
		if strings.HasSuffix(name, "no image") {
			image = ""
		}
		w := worldOf(t, volume(nil), valueOf(setting.V1DataEngine, "true"), valueOf(setting.DefaultEngineImage, image))
		live := &reads{Reader: w.Reader}
		w.Reader = live
		err := asked(t, w, c.plural, c.old, c.changed)
		var refusal *Rejection
		if err != nil && !errors.As(err, &refusal) {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(live.kinds, c.want) {
			t.Errorf("%s: %v are read live, want %v", name, live.kinds, c.want)
		}
	}
}
