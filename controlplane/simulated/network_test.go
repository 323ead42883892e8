package simulated_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// networkChange is somebody who changes the setting storage-network as the API server and the
// webhook do it: the setting is read, the volumes are looked at, and the new value is stored if the
// setting is still what was read; else it begins again.
type networkChange struct {
	w *world
	// judged is the setting as it was when the volumes were found detached, nil before.
	judged        *v1beta2.Setting
	done, refused bool
}

const newNetwork = "kube-system/data"

// judge reads the setting and looks at the volumes.
func (n *networkChange) judge() {
	s := get[*v1beta2.Setting](n.w, setting.StorageNetwork)
	if n.refused = n.w.volume("v").Status.State != v1beta2.VolumeStateDetached; !n.refused {
		n.judged = s
	}
}

// store stores the new value.
func (n *networkChange) store() {
	for !n.done && !n.refused {
		n.judged.Value = newNetwork
		switch err := n.w.store.update(n.judged, false); {
		case err == nil:
			n.done = true
		case apierrors.IsConflict(err):
			n.judge()
		default:
			n.w.failf("%v", err)
		}
	}
}

// oneNetwork fails when a process runs on another network than the setting says.
func (w *world) oneNetwork() {
	want := get[*v1beta2.Setting](w, setting.StorageNetwork).Value
	alive, _ := w.running()
	for _, p := range alive {
		o := get[*corev1.Pod](w, p.pod.name)
		if o == nil {
			continue
		}
		if have := o.Annotations[naming.AnnotationNetworks]; (have == "") != (want == "") {
			w.failf("process %s runs on network %q, the setting says %q", p.name, have, want)
		}
	}
}

// TestC10: the storage network is changed while a volume is attached, with every order of the two:
// the volumes are looked at after each number of steps of the controllers, and the value is stored
// some steps later. Either the change is refused, or every process is started on the new network;
// the volume is attached in the end.
func TestC10(t *testing.T) {
	outcomes := map[bool]int{}
	for at := range 20 {
		for _, later := range []int{0, 1, 3, 8, 24} {
			scenes(t, 1, 2, func(t *testing.T, w *world) {
				w.makeVolume(2, nil)
				w.settle()
				w.expect(`detached unknown at ""`)
				change, step := &networkChange{w: w}, 0
				w.afterLook = func() {
					if step == at {
						change.judge()
					}
					if step == at+later {
						change.store()
					}
					w.oneNetwork()
					step++
				}
				w.tickets("x", "n1", v1beta2.AttacherTypeLonghornAPI)
				w.run(5 * time.Minute)
				if step <= at+later || change.done == change.refused {
					w.failf("%d steps, later %d: the change has not ended after %d: %+v", at, later, step, change)
				}
				w.expect(`attached healthy at "n1"`)
				if changed := get[*v1beta2.Setting](w, setting.StorageNetwork).Value == newNetwork; changed != change.done {
					t.Errorf("changed %v, but done %v", changed, change.done)
				}
				outcomes[change.done]++
			})
		}
	}
	if outcomes[true] == 0 || outcomes[false] == 0 {
		t.Errorf("changed or refused: %v; both must happen", outcomes)
	}
}

// TestClaimBesideAnotherVolume: while another volume is attached, or is attaching and has claimed
// the network, no change gets past that one, and the claim of a network costs no write; without it
// the setting is written.
func TestClaimBesideAnotherVolume(t *testing.T) {
	for _, state := range []v1beta2.VolumeState{"attached", "attaching", "detached"} {
		scene(t, 2, func(t *testing.T, w *world) {
			w.volumes["other"] = &wanted{name: "other"}
			w.create(&v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: naming.VolumeLabels("other"),
				Finalizers: []string{v1beta2.Finalizer}}, Spec: v1beta2.VolumeSpec{Size: volumeSize, NumberOfReplicas: 1,
				Frontend: v1beta2.VolumeFrontendBlockDev, Image: engineImage}})
			w.makeVolume(2, nil)
			w.settle()
			if state == "attaching" {
				w.hang(w.host(w.replicasOf("other")[0].Spec.NodeID), true)
			}
			if state != "detached" {
				w.ticketOf("other", "ui", "n1", v1beta2.AttacherTypeLonghornAPI)
				w.run(20 * time.Second)
			}
			if have := w.volume("other").Status.State; have != state {
				w.failf("the other volume is %s, not %s", have, state)
			}
			before := get[*v1beta2.Setting](w, setting.StorageNetwork)
			w.tickets("x", "n2", v1beta2.AttacherTypeLonghornAPI)
			w.run(time.Minute)
			after := get[*v1beta2.Setting](w, setting.StorageNetwork)
			if after.Annotations[naming.AnnotationNetworkClaimed] == "" ||
				(before.ResourceVersion == after.ResourceVersion) != (state != "detached") {
				w.failf("another volume is %s: the setting was %v, is %v", state, before.ObjectMeta, after.ObjectMeta)
			}
		})
	}
}
