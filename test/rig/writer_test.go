package rig

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"ankole.storage/test/wait"
)

// broken fails every write.
type broken struct{ Device }

func (broken) WriteAt([]byte, int64) (int, error) { return 0, errors.New("I/O error") }

// failing is a test that ends as a real one does.
type failing struct {
	testing.TB
	said error
}

func (*failing) Helper()      {}
func (*failing) Name() string { return "TestOf" }

func (f *failing) Fatal(args ...any) {
	f.said, _ = args[0].(error)
	runtime.Goexit()
}

// TestErrorsAreFinal: who waits for a writer that has seen an error hears of the error at once, and
// not that the wait ran out.
func TestErrorsAreFinal(t *testing.T) {
	notes := filepath.Join(t.TempDir(), "notes")
	t.Setenv(wait.NotesVariable, notes)
	w := NewWriter(broken{}, mib, 1)
	_ = wait.Receive(t, "the writer's end", w.Run(make(chan struct{})))
	f, ended := &failing{TB: t}, make(chan struct{})
	go func() { defer close(ended); w.AwaitMore(f, 1) }()
	wait.Receive(t, "the wait's end", ended)
	said, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(said), "final\tTestOf\t") || f.said == nil ||
		!strings.Contains(f.said.Error(), "I/O error") {
		t.Errorf("noted %q, said %v", said, f.said)
	}
}
