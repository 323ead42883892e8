package daemon

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ankole.storage/instancemanager/process"
)

// TestLeftoversAreLookedForAgain: at the start of an instance manager devices of the one before
// wait for their engines, which may never come here. So what is left is looked for as long as it
// runs, but for the volumes that its own engines serve.
func TestLeftoversAreLookedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeftovers("/nowhere", slog.New(slog.DiscardHandler))
		l.closed = false
		var looks [][]string
		l.removeAll = func(_ context.Context, _ string, served map[string]bool) error {
			looks = append(looks, slices.Sorted(maps.Keys(served)))
			return errors.New("one could not be removed")
		}
		l.run(func() (list []process.Status, _ int64) {
			if len(looks) > 0 {
				for _, name := range []string{"a-e-0", "b-e-e-1", "c-r-12345678"} {
					list = append(list, process.Status{Spec: process.Spec{Name: name}})
				}
			}
			return list, 0
		})
		<-time.After(2*lookAgain + time.Second)
		synctest.Wait()
		if len(looks) != 3 || len(looks[0]) != 0 || !slices.Equal(looks[2], []string{"a", "b-e"}) {
			t.Errorf("looks without %v", looks)
		}
		l.close()
		<-time.After(2 * lookAgain)
		if len(looks) != 3 {
			t.Error("it looks after its end")
		}
	})
}
