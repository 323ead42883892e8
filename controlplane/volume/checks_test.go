package volume_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// verdict takes the place of a test: it keeps what a world's checks say.
type verdict struct{ said string }

func (v *verdict) Helper()             {}
func (v *verdict) Logf(string, ...any) {}
func (v *verdict) Fatalf(format string, args ...any) {
	v.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// judged runs a history in a world of its own and returns what the checks said, "" if nothing was
// wrong.
func judged(t *testing.T, history func(v *verdict)) string {
	t.Helper()
	v, ended := &verdict{}, make(chan struct{})
	go func() {
		defer close(ended)
		history(v)
	}()
	<-ended
	return v.said
}

// staleCopyAlone: a volume of two loses one replica, goes on, and is detached. Then only the node
// of the lost one is up.
func staleCopyAlone(w *world) {
	w.cut("n2")
	w.settle()
	w.ticket("ui", "", "")
	w.settle()
	w.mend("n2")
	w.cut("n1")
	w.ticket("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
	w.advance(openMost, stepOfTime)
}

// TestWorldNoticesAStartWithStaleCopies shows that the checks of the world are able to fail: an
// engine that takes whatever copies it hears starts without the latest content. (P2: a replica that
// missed an acknowledged write serves nobody.)
func TestWorldNoticesAStartWithStaleCopies(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		bug  bug
		want string
	}{
		{"the protocol", noBug, ""},
		{"any copy is taken", startsWithAnyCopy, "P2: engine v-e-0"},
	} {
		dir := t.TempDir()
		var down string
		said := judged(t, func(v *verdict) {
			w := newWorld(v, dir, 2)
			w.bug = row.bug
			w.newVolume(2, nil)
			w.settle()
			w.ticket("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
			w.settle()
			staleCopyAlone(w)
			down = w.dump()
			if n := len(w.engines); n != 0 {
				v.Fatalf("%d engines run on the stale copy\n%s", n, down)
			}
		})
		if (said == "") != (row.want == "") || !strings.HasPrefix(said, row.want) {
			t.Errorf("%s: the checks say %q, want %q\n%s", row.name, said, row.want, down)
		}
	}
}

const (
	// openMost is longer than the control plane waits for replicas before it starts an engine
	// without them.
	openMost   = 3 * time.Minute
	stepOfTime = 15 * time.Second
)
