package admission

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

func newSnapshot(edit func(*v1beta2.Snapshot)) *v1beta2.Snapshot {
	return named(&v1beta2.Snapshot{}, "s", nil, func(s *v1beta2.Snapshot) {
		s.Spec.Volume = "one"
		edit(s)
	})
}

// TestNewSnapshots: a snapshot names a volume, and labels that an engine can be given.
func TestNewSnapshots(t *testing.T) {
	for want, edit := range map[string]func(*v1beta2.Snapshot){
		"":                         func(s *v1beta2.Snapshot) { s.Spec.Labels = map[string]string{"a": "b"} },
		"fill spec.volume":         func(s *v1beta2.Snapshot) { s.Spec.Volume = "" },
		`label "a=" with value`:    func(s *v1beta2.Snapshot) { s.Labels = map[string]string{"a=": ""} },
		`with value "=b" contains`: func(s *v1beta2.Snapshot) { s.Labels = map[string]string{"a": "=b"} },
		"at most 225": func(s *v1beta2.Snapshot) {
			s.Spec.CreateSnapshot, s.Name = true, strings.Repeat("x", 226)
		},
		`"x_y"`:                     func(s *v1beta2.Snapshot) { s.Spec.CreateSnapshot, s.Name = true, "x_y" },
		`label "c=d" with value ""`: func(s *v1beta2.Snapshot) { s.Spec.Labels = map[string]string{"c=d": ""} },
		`"c" with value "d=" cont`:  func(s *v1beta2.Snapshot) { s.Spec.Labels = map[string]string{"c": "d="} },
	} {
		expect(t, want, CheckSnapshot(nil, newSnapshot(edit)), want)
	}
}

// TestChangedSnapshots: volume, owner and the volume's label stay once they are there.
func TestChangedSnapshots(t *testing.T) {
	whole := func(s *v1beta2.Snapshot) {
		s.Labels = map[string]string{"longhornvolume": "one"}
		s.OwnerReferences = []metav1.OwnerReference{{Kind: "Volume", Name: "one"}}
	}
	bare := func(*v1beta2.Snapshot) {}
	for _, tt := range []struct {
		name        string
		before, now func(*v1beta2.Snapshot)
		want        string
	}{
		{"nothing", whole, whole, ""},
		{"owner and label are added", bare, whole, ""},
		{"the volume", bare, func(s *v1beta2.Snapshot) { s.Spec.Volume = "two" }, "spec.volume cannot be changed"},
		{"the owner", whole, func(s *v1beta2.Snapshot) { whole(s); s.OwnerReferences = nil }, "owner cannot be changed"},
		{"the label", whole, func(s *v1beta2.Snapshot) { whole(s); s.Labels["longhornvolume"] = "two" },
			"label longhornvolume cannot be changed"},
		{"labels of engines are not looked at again", whole, func(s *v1beta2.Snapshot) {
			whole(s)
			s.Spec.Labels = map[string]string{"a=b": "c"}
		}, ""},
	} {
		expect(t, tt.name, CheckSnapshot(newSnapshot(tt.before), newSnapshot(tt.now)), tt.want)
	}
}

// TestSnapshotsAreCompleted: a new one gets owner, label and finalizer; of a volume that does not
// exist there is none, and a change completes nothing.
func TestSnapshotsAreCompleted(t *testing.T) {
	v := namedVolume("one", nil)
	v.UID = "uid"
	w := worldOf(t, v)
	var none *v1beta2.Snapshot
	plain := newSnapshot(func(*v1beta2.Snapshot) {})
	completes(t, "new", w, "snapshots", none, plain, func(s *v1beta2.Snapshot) {
		s.Finalizers, s.Labels = finalizer, map[string]string{"longhornvolume": "one"}
		s.OwnerReferences = []metav1.OwnerReference{ownedByVolume(v)}
	})
	owned := newSnapshot(func(s *v1beta2.Snapshot) { s.OwnerReferences = []metav1.OwnerReference{{Name: "mine"}} })
	completes(t, "new with an owner", w, "snapshots", none, owned, func(s *v1beta2.Snapshot) {
		s.Finalizers, s.Labels = finalizer, map[string]string{"longhornvolume": "one"}
	})
	completes(t, "changed", w, "snapshots", plain, plain, func(*v1beta2.Snapshot) {})
	completes(t, "of no volume", w, "snapshots", none,
		newSnapshot(func(s *v1beta2.Snapshot) { s.Spec.Volume = "" }), func(*v1beta2.Snapshot) {})
	lost := newSnapshot(func(s *v1beta2.Snapshot) { s.Spec.Volume = "two" })
	_, err := completed(t, w, "snapshots", nil, lost)
	expect(t, "no such volume", err, `of volume "two", which does not exist`)
	w.Reader = failing{w.Reader, new(int)}
	_, err = completed(t, w, "snapshots", nil, plain)
	expect(t, "nothing can be read", err, "down")
}

// TestSnapshotRequests: both rules are asked by the webhook.
func TestSnapshotRequests(t *testing.T) {
	w := worldOf(t)
	h, err := byPlural("snapshots")
	if err != nil {
		t.Fatal(err)
	}
	bad := newSnapshot(func(s *v1beta2.Snapshot) { s.Spec.Volume = "" })
	owned := newSnapshot(func(s *v1beta2.Snapshot) {
		s.OwnerReferences = []metav1.OwnerReference{{Kind: "Volume", Name: "one"}}
	})
	for _, tt := range []struct {
		name     string
		old, new *v1beta2.Snapshot
		want     string
	}{
		{"created", nil, bad, "fill spec.volume"},
		{"changed", newSnapshot(func(*v1beta2.Snapshot) {}), bad, "cannot be changed"},
		{"the owner is added", newSnapshot(func(*v1beta2.Snapshot) {}), owned, ""},
	} {
		op, before := createUpdate[0], []byte(nil)
		if tt.old != nil {
			op, before = createUpdate[1], encoded(t, tt.old)
		}
		expect(t, tt.name, h.validate(t.Context(), w, op, before, encoded(t, tt.new)), tt.want)
	}
}
