package allocator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"ankole.storage/controlplane/loop"
)

// TestBudgetsOneAfterTheOther: nobody looks at the live objects while a deletion is under way, and
// one without a clear answer counts as done for some time.
func TestBudgetsOneAfterTheOther(t *testing.T) {
	now := time.Unix(1e9, 0)
	b := NewBudgets(func() time.Time { return now })
	var released []string
	release := func(node string, ok bool, err error) loop.Reserving {
		return b.Release(node, loop.Delete{}, func(_ context.Context, gone map[string]bool) (bool, error) {
			released = slices.Sorted(maps.Keys(gone))
			return ok, err
		}).(loop.Reserving)
	}
	take := func(r loop.Reserving) bool {
		t.Helper()
		ok, err := r.Reserve(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	first := release("n1", true, nil)
	if !take(first) {
		t.Fatal("the first is not allowed")
	}
	if ok, err := release("n2", true, nil).Reserve(stopped); ok || !errors.Is(err, context.Canceled) {
		t.Fatalf("beside a deletion under way: %v, %v", ok, err)
	}
	first.Done(errBroken)
	for _, row := range []struct {
		after time.Duration
		want  []string
	}{{0, []string{"n1"}}, {uncertainFor - 1, []string{"n1"}}, {1, nil}} {
		now = now.Add(row.after)
		if take(release("n2", false, nil)); !slices.Equal(released, row.want) {
			t.Fatalf("%v later: %v count as released, want %v", row.after, released, row.want)
		}
	}
	for _, end := range []error{nil, conflict, invalid} {
		r := release("n1", true, nil)
		take(r)
		r.Done(end)
		if take(release("n2", false, nil)); len(released) > 0 {
			t.Errorf("after %v %v count as released", end, released)
		}
	}
	if ok, err := release("n2", true, errBroken).Reserve(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("live objects that cannot be read: %v, %v", ok, err)
	}
	if !take(release("n2", true, nil)) {
		t.Error("no turn after one that failed")
	}
}
