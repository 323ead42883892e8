package admission

import (
	"context"
	"errors"
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

var errDown = errors.New("down")

// failing is a reader whose read with a number fails: 0 is the first, and after it none does.
type failing struct {
	client.Reader
	left *int
}

func (f failing) fail() bool {
	*f.left--
	return *f.left == -1
}

func (f failing) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if f.fail() {
		return errDown
	}
	return f.Reader.Get(ctx, key, o, opts...)
}

func (f failing) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if f.fail() {
		return errDown
	}
	return f.Reader.List(ctx, list, opts...)
}

// TestNobodyIsLetInUnseen: where a fact cannot be read, the answer is an error and not a
// permission. Each request is asked with each of its reads failing in turn.
func TestNobodyIsLetInUnseen(t *testing.T) {
	plain := named(newVolume(), "fresh", nil, func(v *v1beta2.Volume) {
		v.Spec.DataSource, v.Spec.CloneMode = "vol://one", "full-copy"
	})
	stored := namedVolume("one", nil)
	changed := namedVolume("one", func(v *v1beta2.Volume) {
		v.Spec.Image, v.Spec.BackupTargetName, v.Spec.Size, v.Spec.SnapshotMaxCount = "engine:2", "second", 2*gib, 9
	})
	node := named(nodeWith(), "n-one", nil, nil)
	gone := named(node.DeepCopy(), "n-three", nil, func(n *v1beta2.Node) {
		n.Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: "False", Reason: "KubernetesNodeGone"}}
	})
	engine := named(&v1beta2.Engine{}, "three-e-0", nil, func(e *v1beta2.Engine) { e.Spec.VolumeName = "three" })
	replica := named(&v1beta2.Replica{}, "one-r-2", nil, func(r *v1beta2.Replica) { r.Spec.VolumeName = "one" })
	image := named(&v1beta2.EngineImage{}, "ei", nil, func(e *v1beta2.EngineImage) { e.Spec.Image = "engine:9" })
	manager := named(&v1beta2.InstanceManager{}, "im", nil, func(im *v1beta2.InstanceManager) {
		im.Spec.NodeID, im.Spec.Image, im.Spec.Type = "n-one", "i", v1beta2.InstanceManagerTypeAllInOne
	})
	attachment := named(&v1beta2.VolumeAttachment{}, "two", nil, func(a *v1beta2.VolumeAttachment) {
		a.Spec.Volume = "local"
	})
	local := namedVolume("local", func(v *v1beta2.Volume) { v.Spec.DataLocality = v1beta2.DataLocalityStrictLocal })
	newer := named(deployed(), naming.EngineImageName("engine:2"), nil, nil)
	iso := named(&v1beta2.BackingImage{}, "iso", nil, nil)
	for _, tt := range []struct {
		name, plural string
		old, new     client.Object
		reads        int
	}{
		{"new volume", "volumes", nil, plain, 6},
		{"changed volume", "volumes", stored, changed, 7},
		{"new node", "nodes", nil, node, len(readForNodes)},
		{"changed node", "nodes", node, node, len(readForNodes)},
		{"deleted node", "nodes", gone, nil, 3},
		{"new engine", "engines", nil, engine, 3},
		{"new replica", "replicas", nil, replica, 1},
		{"deleted replica", "replicas", replica, nil, 4},
		{"deleted image", "engineimages", image, nil, 1},
		{"new instance manager", "instancemanagers", nil, manager, 1},
		{"new attachment", "volumeattachments", nil, attachment, 1},
		{"changed attachment", "volumeattachments", attachment, attachment, 2},
		{"setting", "settings", nil, valueOf("auto-salvage", "true"), 0},
		{"one of two settings", "settings", nil, valueOf("disable-snapshot-purge", "false"), 1},
		{"network", "settings", nil, valueOf("storage-network", ""), 1},
		{"network claimed", "settings", valueOf("storage-network", "a/b"), valueOf("storage-network", "a/b"), 0},
		{"data path", "settings", valueOf("default-data-path", "/a"), valueOf("default-data-path", "/a"), 1},
		{"data engine", "settings", valueOf("v1-data-engine", "true"), valueOf("v1-data-engine", "true"), 1},
		{"priority class", "settings", valueOf("priority-class", ""), valueOf("priority-class", "x"), 1},
		{"class of static volumes", "settings", valueOf(staticClass, "a"), valueOf(staticClass, "b"), 1},
		{"new target", "backuptargets", nil, targetAt("new", "s3://b@r/new", "s"), 2},
		{"changed target", "backuptargets", targetAt("second", "", ""), targetAt("second", "s3://b@r/new", "s"), 3},
		{"deleted target", "backuptargets", targetAt("second", "", ""), nil, 1},
		{"new backing image", "backingimages", nil, imageOf("disk", func(s *v1beta2.BackingImageSpec) {
			s.MinNumberOfCopies = 0
		}), 1},
		{"deleted backing image", "backingimages", iso, nil, 1},
		{"new job", "recurringjobs", nil, jobOf("job", nil), 1},
		{"changed job", "recurringjobs", jobOf("job", nil), jobOf("job", func(s *v1beta2.RecurringJobSpec) {
			s.Retain = 8
		}), 1},
	} {
		objects := append(standing(), namedVolume("three", nil), local, newer, iso, named(node.DeepCopy(),
			"n-one", nil, func(n *v1beta2.Node) {
				n.Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: "True"}}
			}), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "x"}},
			&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
		for read := range tt.reads + 1 {
			w, left := worldOf(t, objects...), read
			w.Reader, w.cached = failing{w.Reader, &left}, failing{w.cached, &left}
			err := asked(t, w, tt.plural, tt.old, tt.new)
			if read < tt.reads && !errors.Is(err, errDown) || read == tt.reads && err != nil {
				t.Errorf("%s: read %d of %d fails: %v", tt.name, read+1, tt.reads, err)
			}
		}
	}
}
