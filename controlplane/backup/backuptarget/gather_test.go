package backuptarget

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/test/wait"
)

// TestTurnedOnAgain: of a target that was turned off an earlier look says nothing any more, for
// backups may have been made since.
func TestTurnedOnAgain(t *testing.T) {
	t.Parallel()
	s := runtime.NewScheme()
	if err := v1beta2.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	r := New(Config{})
	r.client = fake.NewClientBuilder().WithScheme(s).Build()
	b := target(nil)
	b.Name, b.Status.LastSyncedAt = "second", metav1.NewTime(t0)
	order := (&pass{t: b}).order()
	r.looks.Begin(b.Name, order, func(context.Context) (listing, error) { return listing{}, nil })
	wait.Until(t, "the look is over", func() bool { return r.looks.Of(b.Name).Is(order) })
	looks := func() string {
		seen, err := r.gather(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		return show(decide(time.Now(), b, seen))
	}
	const look = "list the volumes of backup target second"
	if got := looks(); got == look {
		t.Fatalf("a target that was looked at: %q", got)
	}
	url := b.Spec.BackupTargetURL
	b.Spec.BackupTargetURL = ""
	looks()
	b.Spec.BackupTargetURL = url
	if got := looks(); got != look {
		t.Errorf("turned on again: %q", got)
	}
}
