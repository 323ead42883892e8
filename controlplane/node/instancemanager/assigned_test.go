package instancemanager

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
)

// TestAnEngineThatIsWaitedForIsAssigned: an instance manager may keep the block device of an engine
// that has ended, for the next one of the volume. It is not idle while that is wanted, until it is
// closed: then no engine starts there.
func TestAnEngineThatIsWaitedForIsAssigned(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		desired  v1beta2.InstanceState
		current  v1beta2.InstanceState
		in       string
		closed   string
		assigned bool
	}{
		{"it runs", v1beta2.InstanceStateRunning, v1beta2.InstanceStateRunning, "im", "", true},
		{"it has failed and is wanted", v1beta2.InstanceStateRunning, v1beta2.InstanceStateError, "im", "", true},
		{"it has ended and is wanted", v1beta2.InstanceStateRunning, v1beta2.InstanceStateStopped, "im", "", true},
		{"it has failed, the Pod is closed", v1beta2.InstanceStateRunning, v1beta2.InstanceStateError, "im", "pod", false},
		{"it has failed and is not wanted", v1beta2.InstanceStateStopped, v1beta2.InstanceStateError, "im", "", false},
		{"it has failed elsewhere", v1beta2.InstanceStateRunning, v1beta2.InstanceStateError, "other", "", false},
		{"it is being stopped", v1beta2.InstanceStateStopped, v1beta2.InstanceStateStopping, "im", "pod", true},
	} {
		e := &v1beta2.Engine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v-e-0"}}
		e.Spec.DesireState, e.Status.CurrentState, e.Status.InstanceManagerName = tt.desired, tt.current, tt.in
		im := &v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "im"}}
		im.Status.CurrentState, im.Status.ClosedPod = v1beta2.InstanceManagerStateRunning, tt.closed
		builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(e)
		for _, i := range index.All() {
			builder = builder.WithIndex(i.Object, i.Field, i.Of)
		}
		r := &Reconciler{client: builder.Build()}
		got, err := r.assigned(t.Context(), im)
		if err != nil || (got != "") != tt.assigned {
			t.Errorf("%s: assigned %q, %v", tt.name, got, err)
		}
	}
}
