package process

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"ankole.storage/instancemanager/instancetest"
)

// TestCloseIdle: what runs keeps the Manager open; after the close nothing is started.
func TestCloseIdle(t *testing.T) {
	m := newManager(t, nil)
	silent := spec(t, "demo-e-0", instancetest.NeverListens, 0)
	if _, err := m.Create(silent); err != nil {
		t.Fatal(err)
	}
	if m.CloseIdle() {
		t.Fatal("closed although a process runs")
	}
	failing := silent
	failing.Name, failing.Binary = "demo-r-1", "/nonexistent"
	if _, err := m.Create(failing); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Delete("demo-e-0", ""); err != nil {
		t.Fatal(err)
	}
	if m.CloseIdle() {
		t.Fatal("closed although a process is stopping")
	}
	awaitGone(t, m, "demo-e-0")
	for range 2 { // closed stays closed
		if !m.CloseIdle() {
			t.Fatal("not closed although only a failed process is left")
		}
	}
	if _, err := m.Create(silent); !errors.Is(err, ErrRefused) {
		t.Fatalf("created after the close: %v", err)
	}
	if list, _ := m.List(); len(list) != 1 {
		t.Errorf("listed: %+v", list)
	}
}

// TestCreateBesideCloseIdle: an order beside the close either arrives before it and keeps the
// Manager open, or is refused.
func TestCreateBesideCloseIdle(t *testing.T) {
	for round := range 20 {
		m := newManager(t, nil)
		var started, refused int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 2 {
			s := spec(t, fmt.Sprintf("demo-r-%d", i), instancetest.NeverListens, 0)
			all.Go(func() {
				_, err := m.Create(s)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					started++
				case errors.Is(err, ErrRefused):
					refused++
				default:
					t.Error(err)
				}
			})
		}
		closed := m.CloseIdle()
		all.Wait()
		if closed != (started == 0) || started+refused != 2 {
			t.Fatalf("round %d: closed %v, %d started, %d refused", round, closed, started, refused)
		}
	}
}
