package allocator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"
)

// TestBudgetsOneAfterTheOther: nobody looks at the live objects while a deletion is under way, and
// one without a clear answer counts as done for some time.
func TestBudgetsOneAfterTheOther(t *testing.T) {
	now := time.Unix(1e9, 0)
	b := NewBudgets(func() time.Time { return now })
	var released []string
	release := func(ctx context.Context, node string, ok bool, err error) (func(error), error) {
		return b.Release(ctx, node, func(_ context.Context, gone map[string]bool) (bool, error) {
			released = slices.Sorted(maps.Keys(gone))
			return ok, err
		})
	}
	take := func(node string, ok bool) func(error) {
		t.Helper()
		done, err := release(t.Context(), node, ok, nil)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	first := take("n1", true)
	if first == nil {
		t.Fatal("the first is not allowed")
	}
	if done, err := release(stopped, "n2", true, nil); done != nil || !errors.Is(err, context.Canceled) {
		t.Fatalf("beside a deletion under way: %v", err)
	}
	first(errBroken)
	for _, row := range []struct {
		after time.Duration
		want  []string
	}{{0, []string{"n1"}}, {uncertainFor - 1, []string{"n1"}}, {1, nil}} {
		now = now.Add(row.after)
		if take("n2", false); !slices.Equal(released, row.want) {
			t.Fatalf("%v later: %v count as released, want %v", row.after, released, row.want)
		}
	}
	for _, end := range []error{nil, conflict, invalid} {
		take("n1", true)(end)
		if take("n2", false); len(released) > 0 {
			t.Errorf("after %v %v count as released", end, released)
		}
	}
	if done, err := release(t.Context(), "n2", true, errBroken); done != nil || !errors.Is(err, errBroken) {
		t.Errorf("live objects that cannot be read: %v", err)
	}
	if take("n2", true) == nil {
		t.Error("no turn after one that failed")
	}
}
