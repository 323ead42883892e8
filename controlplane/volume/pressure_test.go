package volume

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/allocator"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/setting"
)

// pressed is the volume of fixture, which balances with best effort, with its replica a on a disk
// under pressure, disk-n1, whose node has another disk.
func pressed() (*v1beta2.Volume, *seen) {
	v, s := fixture()
	v.Spec.ReplicaAutoBalance = v1beta2.ReplicaAutoBalanceBestEffort
	s.Settings[setting.ReplicaAutoBalanceDiskPressurePercentage] = "50"
	n := &s.Nodes[0]
	d := n.Status.DiskStatus["d"]
	other := d
	other.DiskUUID, other.StorageAvailable = "disk-n1-b", 95<<30
	d.StorageAvailable = 30 << 30
	n.Spec.Disks["e"] = v1beta2.DiskSpec{Path: "/other", AllowScheduling: true}
	n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"d": d, "e": other}
	return v, s
}

// TestWhoLeavesADiskUnderPressure is the table of whose turn it is.
func TestWhoLeavesADiskUnderPressure(t *testing.T) {
	other := func(name, disk string, edit func(*v1beta2.Volume, *v1beta2.Replica)) []client.Object {
		v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "of-" + name}}
		v.Spec.ReplicaAutoBalance = v1beta2.ReplicaAutoBalanceBestEffort
		v.Status.State, v.Status.Robustness = v1beta2.VolumeStateAttached, v1beta2.VolumeRobustnessHealthy
		r := good(name, "n1", "x")
		r.Namespace, r.Spec.VolumeName, r.Spec.DiskID = "ns", v.Name, disk
		if edit != nil {
			edit(v, &r)
		}
		return []client.Object{v, &r}
	}
	for _, tt := range []struct {
		name string
		edit func(*v1beta2.Volume, *seen)
		also []client.Object
		want []string
	}{
		{"alone there", nil, nil, []string{"a"}},
		{"the first by name", nil, other("b1", "disk-n1", nil), []string{"a"}},
		{"another one is first", nil, other("0", "disk-n1", nil), nil},
		{"the first is on another disk", nil, other("0", "disk-n2", nil), []string{"a"}},
		{"the first does not balance", nil, other("0", "disk-n1", func(v *v1beta2.Volume, _ *v1beta2.Replica) {
			v.Spec.ReplicaAutoBalance = v1beta2.ReplicaAutoBalanceLeastEffort
		}), []string{"a"}},
		{"the first one's volume is degraded", nil, other("0", "disk-n1", func(v *v1beta2.Volume, _ *v1beta2.Replica) {
			v.Status.Robustness = v1beta2.VolumeRobustnessDegraded
		}), []string{"a"}},
		{"the first one's volume is detached", nil, other("0", "disk-n1", func(v *v1beta2.Volume, _ *v1beta2.Replica) {
			v.Status.State = v1beta2.VolumeStateDetached
		}), []string{"a"}},
		{"the first is not in sync", nil, other("0", "disk-n1", func(_ *v1beta2.Volume, r *v1beta2.Replica) {
			r.Spec.HealthyAt = ""
		}), []string{"a"}},
		{"the first has no volume", nil, other("0", "disk-n1", nil)[1:], []string{"a"}},
		{"least effort", func(v *v1beta2.Volume, _ *seen) {
			v.Spec.ReplicaAutoBalance = v1beta2.ReplicaAutoBalanceLeastEffort
		}, nil, nil},
		{"the threshold is off", func(_ *v1beta2.Volume, s *seen) {
			s.Settings[setting.ReplicaAutoBalanceDiskPressurePercentage] = "0"
		}, nil, nil},
		{"degraded", func(v *v1beta2.Volume, _ *seen) { v.Status.Robustness = v1beta2.VolumeRobustnessDegraded }, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, s := pressed()
			if tt.edit != nil {
				tt.edit(v, s)
			}
			scheme := runtime.NewScheme()
			if err := v1beta2.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			objects := append([]client.Object{v}, tt.also...)
			for i := range s.Replicas {
				r := s.Replicas[i].DeepCopy()
				r.Namespace, r.Spec.VolumeName = "ns", v.Name
				objects = append(objects, r)
			}
			builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
			for _, i := range index.All() {
				builder = builder.WithIndex(i.Object, i.Field, i.Of)
			}
			r := New(Config{Namespace: "ns", Allocator: allocator.New("ns", nil)}).WithClient(builder.Build())
			if err := r.gatherTurns(context.Background(), v, s); err != nil {
				t.Fatal(err)
			}
			if got := slices.Sorted(maps.Keys(s.MayLeave)); !slices.Equal(got, tt.want) {
				t.Errorf("%v may leave, want %v", got, tt.want)
			}
		})
	}
}

// A replica whose turn it is gets a successor on the other disk of its node, and goes when that is
// in sync.
func TestADiskUnderPressureIsLeft(t *testing.T) {
	v, s := pressed()
	if d := settle(v, s); d.Do != nil {
		t.Fatalf("without its turn: %s", describe(d))
	}
	s.MayLeave = map[string]bool{"a": true}
	d := settle(v, s)
	if !strings.HasPrefix(describe(d), "create *v1beta2.Replica") {
		t.Fatalf("%s", describe(d))
	}
	third(s)
	c := &s.Replicas[2]
	c.Spec.NodeID, c.Spec.DiskID = "n1", "disk-n1-b"
	c.Status.InstanceManagerName = "im-n1"
	s.Engine.Spec.ReplicaAddressMap["c"] = "10.0.0.3:10000"
	s.Engine.Status.ReplicaModeMap["c"] = v1beta2.ReplicaModeRW
	s.Engine.Status.ReplicaTransitionTimeMap["c"] = s.Engine.Status.ReplicaTransitionTimeMap["a"]
	s.Engine.Status.Membership.Members = append(s.Engine.Status.Membership.Members, "v-cccccccc")
	if d := settle(v, s); describe(d) != "delete *v1beta2.Replica a" {
		t.Errorf("then %s", describe(d))
	}
}
