package admission

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// completes sends an object through the mutation of its kind and compares the answer with the
// object as it should be, both as JSON: null and {} differ. No former object is a creation.
func completes[T client.Object](t *testing.T, name string, w world, plural string, old, sent T, should func(T)) {
	t.Helper()
	var none T
	var before client.Object
	if any(old) != any(none) {
		before = old
	}
	want := sent.DeepCopyObject().(T)
	should(want)
	got, err := completed(t, w, plural, before, sent)
	if text := encoded(t, want); err != nil || string(got) != string(text) {
		t.Errorf("%s: %v\n     %s\nwant %s", name, err, got, text)
	}
}

var finalizer = []string{"longhorn.io"}

// deleting marks an object as one under deletion.
func deleting[T client.Object](o T) T {
	o.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	return o
}

func TestSettingsAndImagesAreCompleted(t *testing.T) {
	w := worldOf(t)
	var no *v1beta2.Setting
	for _, old := range []*v1beta2.Setting{nil, valueOf("auto-salvage", "false")} {
		completes(t, "setting", w, "settings", old, valueOf("auto-salvage", " True "),
			func(s *v1beta2.Setting) { s.Value = "true" })
	}
	completes(t, "unknown setting", w, "settings", no, valueOf("no-such", "x"), func(*v1beta2.Setting) {})

	var none *v1beta2.EngineImage
	image := func(edit func(*v1beta2.EngineImage)) *v1beta2.EngineImage {
		return named(&v1beta2.EngineImage{}, "mine", nil, func(ei *v1beta2.EngineImage) {
			ei.Spec.Image = " engine:1\n"
			edit(ei)
		})
	}
	plain := func(*v1beta2.EngineImage) {}
	const name = "ei-e00e14c7" // of the SHA-512 of engine:1
	completes(t, "new image", w, "engineimages", none, image(plain), func(ei *v1beta2.EngineImage) {
		ei.Name, ei.Spec.Image, ei.Finalizers = name, "engine:1", finalizer
		ei.Labels = map[string]string{"longhorn.io/managed-by": "longhorn-manager", "longhorn.io/component": "engine-image",
			"longhorn.io/engine-image": name}
	})
	completes(t, "changed image", w, "engineimages", image(plain), image(plain), func(ei *v1beta2.EngineImage) {
		ei.Spec.Image, ei.Finalizers = "engine:1", finalizer
	})
	completes(t, "image under deletion", w, "engineimages", image(plain), deleting(image(plain)),
		func(ei *v1beta2.EngineImage) { ei.Spec.Image = "engine:1" })
}

func TestInstanceManagersAreCompleted(t *testing.T) {
	node := named(&v1beta2.Node{}, "n-one", nil, func(n *v1beta2.Node) { n.UID = "uid-of-node" })
	yes, imageLabel := true, naming.InstanceManagerImageLabel("i")
	owner := metav1.OwnerReference{APIVersion: "longhorn.io/v1beta2", Kind: "Node", Name: "n-one", UID: "uid-of-node",
		BlockOwnerDeletion: &yes}
	labels := map[string]string{"longhorn.io/managed-by": "longhorn-manager",
		"longhorn.io/component": "instance-manager", "longhorn.io/instance-manager-type": "aio",
		"longhorn.io/instance-manager-image": imageLabel, "longhorn.io/node": "n-one"}
	manager := func(edit func(*v1beta2.InstanceManager)) *v1beta2.InstanceManager {
		return named(&v1beta2.InstanceManager{}, "im", nil, func(im *v1beta2.InstanceManager) {
			im.Spec.NodeID, im.Spec.Image, im.Spec.Type = "n-one", "i", v1beta2.InstanceManagerTypeAllInOne
			edit(im)
		})
	}
	plain := func(*v1beta2.InstanceManager) {}
	other := func(im *v1beta2.InstanceManager) {
		im.Spec.DataEngine, im.OwnerReferences = "v2", []metav1.OwnerReference{{Name: "other"}}
	}
	var none *v1beta2.InstanceManager
	completes(t, "new", worldOf(t, node), "instancemanagers", none, manager(plain), func(im *v1beta2.InstanceManager) {
		im.Spec.DataEngine, im.Labels, im.OwnerReferences = "v1", labels, []metav1.OwnerReference{owner}
	})
	completes(t, "new, with owner and engine", worldOf(t, node), "instancemanagers", none, manager(other),
		func(im *v1beta2.InstanceManager) { im.Labels = labels })
	completes(t, "changed, its node is gone", worldOf(t), "instancemanagers", manager(plain), manager(plain),
		func(im *v1beta2.InstanceManager) { im.Spec.DataEngine = "v1" })
}

// TestInstancesAreCompleted is about engines and replicas.
func TestInstancesAreCompleted(t *testing.T) {
	w := worldOf(t)
	engine := func(image, older string) *v1beta2.Engine {
		return named(&v1beta2.Engine{}, "one-e-0", nil, func(e *v1beta2.Engine) {
			e.Spec.VolumeName, e.Spec.Image, e.Spec.EngineImage = "one", image, older
		})
	}
	replica := func(image, older string) *v1beta2.Replica {
		return named(&v1beta2.Replica{}, "one-r-1", map[string]string{"longhorn.io/backing-image": "old", "mine": "kept"},
			func(r *v1beta2.Replica) {
				r.Spec.VolumeName, r.Spec.NodeID, r.Spec.DiskID = "one", "n-one", "disk"
				r.Spec.Image, r.Spec.EngineImage = image, older
			})
	}
	for _, tt := range []struct{ name, before, image, older, want string }{
		{"nothing changed", "a", "a", "a", "a"},
		{"engineImage changed", "a", "a", "b", "b"},
		{"image changed", "a", "b", "a", "b"},
		{"both changed", "a", "b", "c", "b"},
		{"only image is known", "a", "b", "", "b"},
		{"only engineImage is known", "a", "", "b", "b"},
	} {
		completes(t, tt.name+" of an engine", w, "engines", engine(tt.before, tt.before), engine(tt.image, tt.older),
			func(e *v1beta2.Engine) {
				e.Spec.Image, e.Spec.EngineImage, e.Spec.DataEngine = tt.want, tt.want, "v1"
				e.Spec.ReplicaAddressMap, e.Spec.UpgradedReplicaAddressMap = map[string]string{}, map[string]string{}
				e.Finalizers = finalizer
			})
		completes(t, tt.name+" of a replica", w, "replicas", replica(tt.before, tt.before), replica(tt.image, tt.older),
			func(r *v1beta2.Replica) {
				r.Spec.Image, r.Spec.EngineImage, r.Spec.DataEngine = tt.want, tt.want, "v1"
				r.Labels = map[string]string{"longhornvolume": "one", "longhornnode": "n-one", "longhorndiskuuid": "disk",
					"mine": "kept"}
				r.Finalizers = finalizer
			})
	}
	var none *v1beta2.Engine
	full := engine("a", "b")
	full.Spec.DataEngine, full.Spec.ReplicaAddressMap = "v2", map[string]string{"r": "1"}
	full.Spec.UpgradedReplicaAddressMap = map[string]string{"r": "2"}
	completes(t, "new engine", w, "engines", none, full, func(e *v1beta2.Engine) {
		e.Spec.EngineImage, e.Finalizers, e.Labels = "a", finalizer, map[string]string{"longhornvolume": "one"}
	})
	var no *v1beta2.Replica
	placed := replica("a", "a")
	placed.Spec.DataEngine, placed.Spec.BackingImage = "v2", "iso"
	completes(t, "new replica", w, "replicas", no, placed, func(r *v1beta2.Replica) {
		r.Finalizers = finalizer
		r.Labels = map[string]string{"longhornvolume": "one", "longhornnode": "n-one", "longhorndiskuuid": "disk",
			"longhorn.io/backing-image": "iso", "mine": "kept"}
	})
	completes(t, "replica under deletion", w, "replicas", placed, deleting(placed.DeepCopy()), func(r *v1beta2.Replica) {
		r.Labels = map[string]string{"longhornvolume": "one", "longhornnode": "n-one", "longhorndiskuuid": "disk",
			"longhorn.io/backing-image": "iso", "mine": "kept"}
	})
}

func TestNodesAreCompleted(t *testing.T) {
	w := worldOf(t)
	var none *v1beta2.Node
	empty := named(&v1beta2.Node{}, "n", nil, nil)
	full := named(&v1beta2.Node{}, "n", nil, func(n *v1beta2.Node) {
		n.Spec.Tags = []string{"b", "a", "b"}
		n.Spec.Disks = map[string]v1beta2.DiskSpec{"d": {Path: "/d", Tags: []string{"y", "x", "y"}}, "e": {DiskType: "block"}}
	})
	for _, old := range []*v1beta2.Node{none, empty} {
		completes(t, "empty", w, "nodes", old, empty, func(n *v1beta2.Node) {
			n.Spec.Name, n.Spec.Tags, n.Spec.Disks, n.Finalizers = "n", []string{}, map[string]v1beta2.DiskSpec{}, finalizer
		})
		completes(t, "with disks", w, "nodes", old, full, func(n *v1beta2.Node) {
			n.Spec.Name, n.Spec.Tags, n.Finalizers = "n", []string{"a", "b"}, finalizer
			n.Spec.Disks = map[string]v1beta2.DiskSpec{
				"d": {Path: "/d", Tags: []string{"x", "y"}, DiskType: "filesystem"}, "e": {DiskType: "block", Tags: []string{}}}
		})
	}
}

func TestAttachmentsAreCompleted(t *testing.T) {
	volume := namedVolume("one", func(v *v1beta2.Volume) { v.UID = types.UID("uid-of-volume") })
	owner := metav1.OwnerReference{APIVersion: "longhorn.io/v1beta2", Kind: "Volume", Name: "one", UID: "uid-of-volume"}
	attachment := func(edit func(*v1beta2.VolumeAttachment)) *v1beta2.VolumeAttachment {
		return named(&v1beta2.VolumeAttachment{}, "va", nil, func(va *v1beta2.VolumeAttachment) {
			va.Spec.Volume = "one"
			edit(va)
		})
	}
	ticket := func(generation int64) func(*v1beta2.VolumeAttachment) {
		return func(va *v1beta2.VolumeAttachment) {
			va.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{"t": {ID: "t", Generation: generation}}
		}
	}
	noTickets := func(va *v1beta2.VolumeAttachment) {
		va.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{}
	}
	plain := func(*v1beta2.VolumeAttachment) {}
	w, plural := worldOf(t, volume), "volumeattachments"
	var none *v1beta2.VolumeAttachment
	created := func(also func(*v1beta2.VolumeAttachment)) func(*v1beta2.VolumeAttachment) {
		return func(va *v1beta2.VolumeAttachment) {
			va.Finalizers, va.Labels = finalizer, map[string]string{"longhornvolume": "one"}
			va.OwnerReferences = []metav1.OwnerReference{owner}
			also(va)
		}
	}
	completes(t, "new", w, plural, none, attachment(plain), created(noTickets))
	for sent, want := range map[int64]int64{-4: 0, 0: 0, 5: 5} {
		completes(t, "new, with a ticket", w, plural, none, attachment(ticket(sent)), created(ticket(want)))
	}
	owned := func(va *v1beta2.VolumeAttachment) {
		noTickets(va)
		va.OwnerReferences = []metav1.OwnerReference{{Name: "other"}}
	}
	completes(t, "new, with an owner", w, plural, none, attachment(owned), created(owned))
	kept := func(va *v1beta2.VolumeAttachment) { va.Finalizers = finalizer }
	completes(t, "changed", w, plural, attachment(plain), attachment(plain), func(va *v1beta2.VolumeAttachment) {
		noTickets(va)
		kept(va)
	})
	moved := attachment(func(va *v1beta2.VolumeAttachment) {
		va.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{"t": {ID: "t", NodeID: "n"}}
	})
	completes(t, "ticket changed", w, plural, attachment(ticket(3)), moved, func(va *v1beta2.VolumeAttachment) {
		kept(va)
		va.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{"t": {ID: "t", NodeID: "n", Generation: 4}}
	})
	completes(t, "under deletion", w, plural, attachment(ticket(3)), deleting(attachment(ticket(3))), plain)
}
