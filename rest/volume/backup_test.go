package volume

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/serve"
)

// late is an API server that has an object only after so many questions.
type late struct {
	client.Reader
	after int
}

func (l *late) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if l.after--; l.after >= 0 {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "snapshots"}, key.Name)
	}
	into.SetName(key.Name)
	return nil
}

// TestBackupOfASnapshotJustTaken: the object of a snapshot comes a moment after the engine has
// taken it, and a backup may be ordered at once; a wait for what does not come has an end.
func TestBackupOfASnapshotJustTaken(t *testing.T) {
	for _, after := range []int{0, 3} {
		var s lh.Snapshot
		err := snapshotOf(t.Context(), &serve.Objects{Live: &late{after: after}}, "s1", &s)
		if err != nil || s.Name != "s1" {
			t.Errorf("after %d questions: %q, %v", after, s.Name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := snapshotOf(ctx, &serve.Objects{Live: &late{after: 1 << 20}}, "s1", &lh.Snapshot{}); err == nil {
		t.Error("a snapshot that is nowhere is found")
	}
}
