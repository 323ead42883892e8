package admission

import (
	"encoding/json"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

const namespace = "longhorn-system"

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta2.AddToScheme, corev1.AddToScheme, schedulingv1.AddToScheme,
		storagev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// worldOf is a cluster of the given objects.
func worldOf(t *testing.T, objects ...client.Object) world {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).Build()
	return world{Reader: c, cached: c, namespace: namespace}
}

// named puts an object into the namespace.
func named[T client.Object](o T, name string, labels map[string]string, edit func(T)) T {
	o.SetName(name)
	o.SetNamespace(namespace)
	o.SetLabels(labels)
	if edit != nil {
		edit(o)
	}
	return o
}

func valueOf(name, value string) *v1beta2.Setting {
	return named(&v1beta2.Setting{}, name, nil, func(s *v1beta2.Setting) { s.Value = value })
}

const staticClass = "default-longhorn-static-storage-class"

// encoded is an object as it comes in a review; nothing for nil.
func encoded(t *testing.T, o client.Object) []byte {
	t.Helper()
	if o == nil {
		return nil
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// completed sends an object to the mutation only, as the API server does, and returns its answer:
// nothing if the mutation has nothing to say.
func completed(t *testing.T, w world, plural string, old, changed client.Object) ([]byte, error) {
	t.Helper()
	h, err := byPlural(plural)
	if err != nil {
		t.Fatal(err)
	}
	c, err := h.mutate(t.Context(), w, operation(old, changed), encoded(t, old), encoded(t, changed))
	if err != nil || c == nil {
		return nil, err
	}
	return encoded(t, c.after), nil
}

func operation(old, changed client.Object) admissionv1.Operation {
	switch {
	case old == nil:
		return admissionv1.Create
	case changed == nil:
		return admissionv1.Delete
	}
	return admissionv1.Update
}

// asked puts a question as the API server does, to the mutation and then to the validation.
func asked(t *testing.T, w world, plural string, old, changed client.Object) error {
	t.Helper()
	after, err := completed(t, w, plural, old, changed)
	if err != nil {
		return err
	}
	h, err := byPlural(plural)
	if err != nil {
		t.Fatal(err)
	}
	return h.validate(t.Context(), w, operation(old, changed), encoded(t, old), after)
}

// standing is what most questions need: settings, an image, a backup target and a volume with its
// replica and its engine on node n1, and the same of another volume, which must not count.
func standing() []client.Object {
	image := named(deployed(), naming.EngineImageName("engine:1"), nil,
		func(e *v1beta2.EngineImage) { e.Spec.Image = "engine:1" })
	objects := []client.Object{valueOf("default-engine-image", "engine:1"), image,
		named(&v1beta2.BackupTarget{}, "default", nil, nil), named(&v1beta2.BackupTarget{}, "second", nil, nil)}
	for _, name := range []string{"one", "two"} {
		of := naming.VolumeLabels(name)
		objects = append(objects, namedVolume(name, nil),
			named(&v1beta2.Replica{}, name+"-r-1", of, func(r *v1beta2.Replica) {
				r.Spec.VolumeName, r.Spec.NodeID, r.Spec.HealthyAt = name, "n-"+name, "t"
			}),
			named(&v1beta2.Engine{}, name+"-e-0", of, func(e *v1beta2.Engine) {
				e.Spec.VolumeName, e.Spec.NodeID = name, "n-"+name
				e.Status.CurrentState = v1beta2.InstanceStateRunning
				e.Status.Snapshots = map[string]v1beta2.SnapshotInfo{"a": {Size: "1"}, "b": {Size: "1"}, "c": {Size: "1"}}
			}))
	}
	return objects
}

func namedVolume(name string, edit func(*v1beta2.Volume)) *v1beta2.Volume {
	v := newVolume()
	v.Labels = nil
	return named(v, name, naming.VolumeLabels(name), func(v *v1beta2.Volume) {
		v.Spec.Image, v.Spec.EngineImage = "engine:1", "engine:1"
		v.Status.State, v.Spec.NodeID, v.Status.CurrentImage = v1beta2.VolumeStateAttached, "n-"+name, "engine:1"
		if edit != nil {
			edit(v)
		}
	})
}

// TestVolumeRequests asks about volumes with rules that depend on what else is in the cluster.
func TestVolumeRequests(t *testing.T) {
	plain := func(edit func(*v1beta2.Volume)) *v1beta2.Volume {
		v := &v1beta2.Volume{}
		v.Name, v.Namespace = "fresh", namespace
		v.Spec.Size, v.Spec.Frontend = gib, v1beta2.VolumeFrontendBlockDev
		edit(v)
		return v
	}
	stored := namedVolume("one", nil)
	changed := func(edit func(*v1beta2.Volume)) *v1beta2.Volume { v := stored.DeepCopy(); edit(v); return v }
	two := named(deployed(), naming.EngineImageName("engine:2"), nil, nil)
	waiting := changed(func(v *v1beta2.Volume) {
		v.Status.State, v.Spec.NodeID, v.Status.CurrentImage = v1beta2.VolumeStateDetached, "", ""
	})
	grown := waiting.DeepCopy()
	grown.Spec.Size, grown.Spec.BackupTargetName = 2*gib, "second"
	homeless := named(&v1beta2.Replica{}, "one-r-2", naming.VolumeLabels("one"), nil)
	iso := named(&v1beta2.BackingImage{}, "iso", nil, func(b *v1beta2.BackingImage) { b.Status.VirtualSize = 2 * gib })
	for _, tt := range []struct {
		name     string
		old, new *v1beta2.Volume
		more     []client.Object
		want     string
	}{
		{"created", nil, plain(func(*v1beta2.Volume) {}), nil, ""},
		{"without an image", nil, plain(func(*v1beta2.Volume) {}), []client.Object{valueOf("default-engine-image", "")},
			"has no engine image"},
		{"with an image nobody knows", nil, plain(func(*v1beta2.Volume) {}),
			[]client.Object{valueOf("default-engine-image", "engine:2")},
			"engine image engine:2 of volume fresh does not exist"},
		{"backing image missing", nil, plain(func(v *v1beta2.Volume) { v.Spec.BackingImage = "iso" }), nil,
			"backing image iso of volume fresh does not exist"},
		{"backing image too large", nil, plain(func(v *v1beta2.Volume) { v.Spec.BackingImage = "iso" }), []client.Object{iso},
			"volume size should be larger than the backing image size"},
		{"clone", nil, plain(func(v *v1beta2.Volume) { v.Spec.DataSource = "vol://one" }), nil, ""},
		{"clone of nothing", nil, plain(func(v *v1beta2.Volume) { v.Spec.DataSource = "vol://none" }), nil,
			"volume none does not exist"},
		{"backup target", nil, plain(func(v *v1beta2.Volume) { v.Spec.BackupTargetName = "second" }), nil, ""},
		{"no such backup target", nil, plain(func(v *v1beta2.Volume) { v.Spec.BackupTargetName = "third" }), nil,
			"backup target third of volume fresh does not exist"},
		{"changed in nothing", stored, stored, nil, ""},
		{"another backup target", stored, changed(func(v *v1beta2.Volume) { v.Spec.BackupTargetName = "third" }), nil,
			"backup target third of volume one does not exist"},
		{"fewer snapshots than there are", stored, changed(func(v *v1beta2.Volume) { v.Spec.SnapshotMaxCount = 2 }), nil,
			"smaller than current usage 3"},
		{"as many snapshots as there are", stored, changed(func(v *v1beta2.Volume) { v.Spec.SnapshotMaxCount = 3 }), nil, ""},
		{"upgraded to nothing", stored, changed(func(v *v1beta2.Volume) { v.Spec.Image = "engine:2" }), nil,
			"engine image engine:2 wanted for volume one does not exist"},
		{"another image and no such backup target", stored, changed(func(v *v1beta2.Volume) {
			v.Spec.Image, v.Spec.BackupTargetName = "engine:2", "third"
		}), []client.Object{two}, "backup target third of volume one does not exist"},
		{"another backup target, grown with replicas that wait", waiting, grown, []client.Object{homeless},
			"replicas that are not scheduled"},
		{"grown, and fewer snapshots than there are", stored, changed(func(v *v1beta2.Volume) {
			v.Spec.Size, v.Spec.SnapshotMaxCount = 2*gib, 2
		}), nil, "smaller than current usage 3"},
		{"clone and no such backup target", nil, plain(func(v *v1beta2.Volume) {
			v.Spec.DataSource, v.Spec.BackupTargetName = "vol://one", "third"
		}), nil, "backup target third of volume fresh does not exist"},
		{"both images left out", waiting, changed(func(v *v1beta2.Volume) { v.Spec.Image, v.Spec.EngineImage = "", "" }),
			nil, ""},
		{"deleted", stored, nil, nil, ""},
	} {
		objects := standing()
		for _, o := range tt.more { // in the place of one with the same name
			kept := objects[:0]
			for _, have := range objects {
				if have.GetName() != o.GetName() {
					kept = append(kept, have)
				}
			}
			objects = append(kept, o)
		}
		var old, now client.Object
		if tt.old != nil {
			old = tt.old
		}
		if tt.new != nil {
			now = tt.new
		}
		expect(t, tt.name, asked(t, worldOf(t, objects...), "volumes", old, now), tt.want)
	}
}

// TestOtherRequests asks about the other kinds.
func TestOtherRequests(t *testing.T) {
	node := func(edit func(*v1beta2.Node)) *v1beta2.Node { return named(nodeWith(), "n-one", nil, edit) }
	up := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-one"}}
	up.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
	gone := node(func(n *v1beta2.Node) {
		n.Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: "False", Reason: "KubernetesNodeGone"}}
	})
	busy := func(millis int) *v1beta2.Node {
		return node(func(n *v1beta2.Node) { n.Spec.InstanceManagerCPURequest = millis })
	}
	engine := func(name, volume string) *v1beta2.Engine {
		return named(&v1beta2.Engine{}, name, nil, func(e *v1beta2.Engine) { e.Spec.VolumeName = volume })
	}
	replica := func(volume string) *v1beta2.Replica {
		return named(&v1beta2.Replica{}, volume+"-r-1", nil, func(r *v1beta2.Replica) {
			r.Spec.VolumeName, r.Spec.HealthyAt = volume, "t"
		})
	}
	second := named(&v1beta2.Replica{}, "one-r-2", naming.VolumeLabels("one"), func(r *v1beta2.Replica) {
		r.Spec.VolumeName, r.Spec.NodeID, r.Spec.HealthyAt = "one", "n-one", "t"
	})
	attachment := func(tickets ...string) *v1beta2.VolumeAttachment {
		return named(&v1beta2.VolumeAttachment{}, "one", nil, func(a *v1beta2.VolumeAttachment) {
			a.Spec.Volume, a.Spec.AttachmentTickets = "one", map[string]v1beta2.AttachmentTicket{}
			for _, n := range tickets {
				a.Spec.AttachmentTickets[n] = v1beta2.AttachmentTicket{ID: n, NodeID: n, Type: v1beta2.AttacherTypeCSI}
			}
		})
	}
	wrong := attachment()
	wrong.Spec.AttachmentTickets["x"] = v1beta2.AttachmentTicket{ID: "y"}
	ofNothing := func(tickets ...string) *v1beta2.VolumeAttachment {
		a := attachment(tickets...)
		a.Spec.Volume = "x"
		return a
	}
	detached := func(name string) *v1beta2.Volume { return namedVolume(name, detachedVolume) }
	idle := func(of, node string, state v1beta2.InstanceState) *v1beta2.Engine {
		return named(&v1beta2.Engine{}, of+"-e-0", nil, func(e *v1beta2.Engine) {
			e.Spec.NodeID, e.Status.CurrentState = node, state
		})
	}
	local := namedVolume("one", func(v *v1beta2.Volume) { v.Spec.DataLocality = v1beta2.DataLocalityStrictLocal })
	manager := named(&v1beta2.InstanceManager{}, "im", nil, func(im *v1beta2.InstanceManager) {
		im.Spec.NodeID, im.Spec.Image, im.Spec.Type = "n-one", "i", v1beta2.InstanceManagerTypeAllInOne
	})
	image := named(&v1beta2.EngineImage{}, "ei", nil, func(e *v1beta2.EngineImage) { e.Spec.Image = "engine:1" })
	network := valueOf("storage-network", "a/b")
	for _, tt := range []asking{
		{"node of many CPUs", "nodes", node(nil), busy(3200), []client.Object{up}, ""},
		{"node of few CPUs", "nodes", node(nil), busy(3280), []client.Object{up}, "should be less than or equal to 40"},
		{"node that Kubernetes does not know", "nodes", node(nil), busy(3280), nil, ""},
		{"new node", "nodes", nil, busy(-1), nil, "greater than or equal to 0"},
		{"node in use deleted", "nodes", gone, nil, nil, "2 replica and engine running on it"},
		{"node of others deleted", "nodes", named(gone.DeepCopy(), "n-three", nil, nil), nil, nil, ""},
		{"first engine", "engines", nil, engine("new-e-0", "new"), []client.Object{namedVolume("new", nil)}, ""},
		{"second engine", "engines", nil, engine("one-e-1", "one"), nil, "volume one has 1 engines already"},
		{"engine of nothing", "engines", nil, engine("x-e-0", "x"), nil, `volume "x", which does not exist`},
		{"engine changed", "engines", engine("one-e-0", "one"), engine("one-e-0", "one"), nil, ""},
		{"engine while engines are off", "engines", nil, engine("new-e-0", "new"),
			[]client.Object{namedVolume("new", nil), valueOf("v1-data-engine", "false")}, "v1-data-engine is false"},
		{"replica while engines are off", "replicas", nil, replica("one"),
			[]client.Object{valueOf("v1-data-engine", "false")},
			"v1-data-engine is false"},
		{"replica", "replicas", nil, replica("one"), nil, ""},
		{"replica changed while engines are off", "replicas", replica("one"), replica("one"),
			[]client.Object{valueOf("v1-data-engine", "false")}, ""},
		{"last replica", "replicas", replica("one"), nil, nil, "no other healthy replica available"},
		{"one of two replicas", "replicas", replica("one"), nil, []client.Object{second, node(nil)}, ""},
		{"the other on a node that is gone", "replicas", replica("one"), nil, []client.Object{second, gone},
			"no other healthy replica available"},
		{"replica of nothing", "replicas", replica("none"), nil, nil, ""},
		{"attachment", "volumeattachments", nil, attachment("n-two"), nil, ""},
		{"attachment of nothing", "volumeattachments", nil, named(attachment(), "x", nil, func(a *v1beta2.VolumeAttachment) {
			a.Spec.Volume = "x"
		}), nil, `volume "x", which does not exist`},
		{"wrong ticket from the beginning", "volumeattachments", nil, wrong, nil, "key and id must be equal"},
		{"ticket of nothing", "volumeattachments", ofNothing(), ofNothing("n-two"), nil, ""},
		{"ticket elsewhere", "volumeattachments", attachment(), attachment("n-two"), nil, ""},
		{"ticket of a local volume elsewhere", "volumeattachments", attachment(), attachment("n-two"), []client.Object{local},
			"its replica is on node n-one"},
		{"ticket of a local volume", "volumeattachments", attachment(), attachment("n-one"), []client.Object{local}, ""},
		{"instance manager", "instancemanagers", nil, manager, []client.Object{node(nil)}, ""},
		{"instance manager of no node", "instancemanagers", nil, manager, nil, `node "n-one", which does not exist`},
		{"default image deleted", "engineimages", image, nil, nil, "deleting the default engine image"},
		{"network while attached", "settings", valueOf("storage-network", ""), network, nil, "2 volumes are not detached: "},
		{"network while detached", "settings", valueOf("storage-network", ""), network,
			[]client.Object{detached("one"), detached("two")}, ""},
		{"network while one is attached", "settings", valueOf("storage-network", ""), network,
			[]client.Object{detached("one")}, "1 volumes are not detached: two"},
		{"data path with a node", "settings", valueOf("default-data-path", "/a"), valueOf("default-data-path", "/b"),
			[]client.Object{node(nil)}, "once a node has joined"},
		{"data path without a node", "settings", valueOf("default-data-path", "/a"), valueOf("default-data-path", "/b"), nil,
			""},
		{"engines off while some run", "settings", valueOf("v1-data-engine", "true"), valueOf("v1-data-engine", "false"), nil,
			"cannot apply v1-data-engine setting"},
		{"engines off while none runs", "settings", valueOf("v1-data-engine", "true"), valueOf("v1-data-engine", "false"),
			[]client.Object{idle("one", "", "stopped"), idle("two", "", "stopped")}, ""},
		{"engines off while one is on a node", "settings", valueOf("v1-data-engine", "true"),
			valueOf("v1-data-engine", "false"), []client.Object{idle("one", "n-one", "stopped"), idle("two", "", "stopped")},
			"cannot apply v1-data-engine setting"},
		{"engines off while one runs", "settings", valueOf("v1-data-engine", "true"), valueOf("v1-data-engine", "false"),
			[]client.Object{idle("one", "", "stopped"), idle("two", "", "running")}, "cannot apply v1-data-engine setting"},
		{"priority class", "settings", valueOf("priority-class", ""), valueOf("priority-class", "high"),
			[]client.Object{&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}}}, ""},
		{"no priority class any more", "settings", valueOf("priority-class", "high"), valueOf("priority-class", ""), nil, ""},
		{"no such priority class", "settings", valueOf("priority-class", ""), valueOf("priority-class", "high"), nil,
			"failed to get priority class high"},
		{"class of static volumes", "settings", valueOf(staticClass, "longhorn-static"), valueOf(staticClass, "gold"),
			[]client.Object{&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}}}, ""},
		{"no such class of static volumes", "settings", valueOf(staticClass, "longhorn-static"), valueOf(staticClass, "gold"),
			nil, "with invalid value gold: failed to get storage class gold: it does not exist"},
		{"the class of static volumes that is made", "settings", valueOf(staticClass, "gold"),
			valueOf(staticClass, "longhorn-static"), nil, ""},
		{"class of static volumes that is gone, same value", "settings", valueOf(staticClass, "gold"),
			valueOf(staticClass, "gold"), nil, ""},
		{"setting created", "settings", nil, valueOf("auto-salvage", "yes"), nil, "auto-salvage with invalid value yes"},
		{"setting deleted", "settings", valueOf("auto-salvage", "true"), nil, nil, "cannot be deleted"},
		{"unknown setting deleted", "settings", valueOf("no-such", ""), nil, nil, ""},
	} {
		tt.check(t)
	}
}

// asking is a review that is allowed, or refused with a text.
type asking struct {
	name, plural string
	old, new     client.Object
	more         []client.Object // beside the standing ones, or in their place
	want         string
}

func (tt asking) check(t *testing.T) {
	t.Helper()
	objects := standing()
	for _, o := range tt.more {
		for i, have := range objects {
			if have.GetName() == o.GetName() && have.GetNamespace() == o.GetNamespace() {
				objects = append(objects[:i], objects[i+1:]...)
				break
			}
		}
		objects = append(objects, o)
	}
	expect(t, tt.name, asked(t, worldOf(t, objects...), tt.plural, tt.old, tt.new), tt.want)
}
