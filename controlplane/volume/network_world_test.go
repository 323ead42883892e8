package volume_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/naming"
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
	var s v1beta2.Setting
	must(n.w.t, n.w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: "storage-network"}, &s))
	if n.refused = n.w.volume("v").Status.State != v1beta2.VolumeStateDetached; !n.refused {
		n.judged = &s
	}
}

// store stores the new value.
func (n *networkChange) store() {
	for !n.done && !n.refused {
		n.judged.Value = newNetwork
		switch err := n.w.c.Update(context.Background(), n.judged); {
		case err == nil:
			n.done = true
		case apierrors.IsConflict(err):
			n.judge()
		default:
			n.w.t.Fatalf("%v", err)
		}
	}
}

// network is the value of the setting.
func (w *world) network() string {
	var s v1beta2.Setting
	must(w.t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: "storage-network"}, &s))
	return s.Value
}

// renew makes the Pods of idle instance managers again that are on another network than the setting
// says. It checks that no process runs on another one.
func (w *world) renew(pods bool) {
	network := w.network()
	var managers v1beta2.InstanceManagerList
	must(w.t, w.c.List(context.Background(), &managers))
	for i := range managers.Items {
		im := &managers.Items[i]
		if im.Status.StorageNetwork == network {
			continue
		}
		for key := range w.procs {
			if strings.HasPrefix(key, im.Name+"/") {
				w.t.Fatalf("process %s runs on network %q, the setting says %q\n%s", key, im.Status.StorageNetwork, network,
					w.dump())
			}
		}
		if pods {
			im.Status.StorageNetwork = network
			must(w.t, w.c.Status().Update(context.Background(), im))
		}
	}
}

// TestC10: the storage network is changed while a volume is attached, with every order of the two:
// the volumes are looked at after each number of steps of the controllers, and the value is stored
// some steps later. Either the change is refused, or every process is started on the new network;
// the volume is attached in the end.
func TestC10(t *testing.T) {
	dir := t.TempDir()
	outcomes := map[bool]int{}
	for at := range 20 {
		for _, later := range []int{0, 1, 3, 8, 24} {
			w := newWorld(t, fmt.Sprintf("%s/%d-%d", dir, at, later), 2)
			w.create(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "storage-network"}})
			w.newVolume(2, nil)
			w.settle()
			w.expect(`detached unknown at ""`)
			change, step := &networkChange{w: w}, 0
			w.afterStep = func() {
				if step == at {
					change.judge()
				}
				if step == at+later {
					change.store()
				}
				w.renew(step%25 == 24) // not before processes are ordered
				step++
			}
			w.ticket("x", "n1", v1beta2.AttacherTypeLonghornAPI)
			w.settle()
			if step <= at+later || change.done == change.refused {
				t.Fatalf("%d steps, later %d: the change has not ended after %d: %+v", at, later, step, change)
			}
			w.expect(`attached healthy at "n1"`)
			if (w.network() == newNetwork) != change.done {
				t.Errorf("network %q, but done %v", w.network(), change.done)
			}
			outcomes[change.done]++
		}
	}
	if outcomes[true] == 0 || outcomes[false] == 0 {
		t.Errorf("changed or refused: %v; both must happen", outcomes)
	}
}

// TestClaimBesideAnotherVolume: while another volume is attached, which no change gets past, the
// claim of a network costs no write; without it the setting is written.
func TestClaimBesideAnotherVolume(t *testing.T) {
	for _, state := range []v1beta2.VolumeState{"attached", "attaching", "detached"} {
		w := newWorld(t, t.TempDir(), 2)
		w.create(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "storage-network"}})
		w.newVolume(2, nil)
		w.settle()
		other := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "other"}}
		w.create(other)
		other.Status.State = state
		must(t, w.c.Status().Update(context.Background(), other))
		w.ticket("x", "n1", v1beta2.AttacherTypeLonghornAPI)
		for range 3 {
			for _, r := range w.recs {
				if r.kind == "VolumeAttachment" {
					w.run(r)
				}
			}
			for _, r := range w.recs {
				if r.kind == "Volume" {
					w.stepOf(r, "v")
				}
			}
		}
		var s v1beta2.Setting
		must(t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: "storage-network"}, &s))
		if written := s.Annotations[naming.AnnotationNetworkClaimed] != ""; written == (state == "attached") {
			t.Errorf("another volume is %s: the setting is written: %v, want %v", state, written, state != "attached")
		}
	}
}
