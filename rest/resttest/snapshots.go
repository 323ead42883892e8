package resttest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	lh "ankole.storage/api/longhorn/v1beta2"
)

// Snapshots is an engine whose snapshots are a list, for tests of what orders them. Use
// NewSnapshots.
type Snapshots struct {
	mu    sync.Mutex
	chain []lh.SnapshotInfo
	calls []string
	fails error
	stuck bool
}

// NewSnapshots is an engine with snapshot s1 below s2 below the head.
func NewSnapshots() *Snapshots {
	s := &Snapshots{}
	for _, name := range []string{"s1", "s2"} {
		s.chain = append(s.chain, lh.SnapshotInfo{Name: name, UserCreated: true})
	}
	return s
}

// Calls is what was ordered, e.g. "take s3".
func (s *Snapshots) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Fail lets every order end with an error.
func (s *Snapshots) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

// List returns the snapshots, the head included.
func (s *Snapshots) List(context.Context, *lh.Engine) (map[string]lh.SnapshotInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]lh.SnapshotInfo{}
	parent := ""
	for _, p := range append(slices.Clone(s.chain), lh.SnapshotInfo{Name: lh.VolumeHeadName}) {
		p.Parent, p.Children, p.Size, p.Created = parent, map[string]bool{}, "4096", "2026-05-03T10:00:00Z"
		if p.Name == lh.VolumeHeadName {
			p.Created = ""
		}
		if before, ok := out[parent]; ok {
			before.Children[p.Name] = true
		}
		out[p.Name], parent = p, p.Name
	}
	return out, nil
}

// Stick lets purges never end.
func (s *Snapshots) Stick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = true
}

func (s *Snapshots) order(what string, do func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != nil {
		return s.fails
	}
	s.calls = append(s.calls, what)
	do()
	return nil
}

// Take takes a snapshot.
func (s *Snapshots) Take(_ context.Context, _ *lh.Engine, name string, labels map[string]string, freeze bool) error {
	what := "take " + name
	if freeze {
		what += " frozen"
	}
	return s.order(what, func() {
		s.chain = append(s.chain, lh.SnapshotInfo{Name: name, UserCreated: true, Labels: labels})
	})
}

// Remove marks a snapshot as removed.
func (s *Snapshots) Remove(_ context.Context, _ *lh.Engine, name string) error {
	i := slices.IndexFunc(s.chain, func(p lh.SnapshotInfo) bool { return p.Name == name })
	if i < 0 {
		return fmt.Errorf("no snapshot %s", name)
	}
	return s.order("remove "+name, func() { s.chain[i].Removed = true })
}

// Purge takes away what is marked as removed, but for what the head stands on.
func (s *Snapshots) Purge(context.Context, *lh.Engine) error {
	return s.order("purge", func() {
		last := len(s.chain) - 1
		var kept []lh.SnapshotInfo
		for i, p := range s.chain {
			if !p.Removed || i == last || s.stuck {
				kept = append(kept, p)
			}
		}
		s.chain = kept
	})
}

// Revert is noted only.
func (s *Snapshots) Revert(_ context.Context, _ *lh.Engine, name string) error {
	return s.order("revert "+name, func() {})
}

// Trim has nothing to give back.
func (s *Snapshots) Trim(context.Context, *lh.Engine) (int64, error) {
	return 4096, s.order("trim", func() {})
}
