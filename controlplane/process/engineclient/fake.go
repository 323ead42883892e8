package engineclient

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Fake is a set of engines in memory, for tests of what uses a Client. It behaves as the interface
// says: an added replica becomes WO and stays so until the test says otherwise.
type Fake struct {
	mu      sync.Mutex
	engines map[string]*fakeEngine
	calls   []string
}

type fakeEngine struct {
	state   State
	changed chan struct{} // closed and replaced at every change
	broken  error
}

var _ Client = (*Fake)(nil)

// Set gives the engine at an address a state, creating it.
func (f *Fake) Set(address string, s State) { f.Change(address, func(have *State) { *have = s }) }

// Change edits the state of the engine at an address, creating it.
func (f *Fake) Change(address string, edit func(*State)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.engines[address]
	if e == nil {
		e = &fakeEngine{changed: make(chan struct{})}
		if f.engines == nil {
			f.engines = map[string]*fakeEngine{}
		}
		f.engines[address] = e
	}
	edit(&e.state)
	e.wake()
}

// Break makes the engine at an address unreachable: watches end and calls fail.
func (f *Fake) Break(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.engines[address]; e != nil {
		e.broken = fmt.Errorf("%w: engine at %s is gone", ErrUnavailable, address)
		e.wake()
		delete(f.engines, address)
	}
}

// Calls returns what was asked for that changes something, e.g. "add 10.0.0.1:10000".
func (f *Fake) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (e *fakeEngine) wake() {
	close(e.changed)
	e.changed = make(chan struct{})
}

func (f *Fake) engine(t Target) (*fakeEngine, error) {
	e := f.engines[t.Address]
	if e == nil {
		return nil, fmt.Errorf("%w: no engine at %s", ErrUnavailable, t.Address)
	}
	if e.state.Engine != "" && t.Engine != "" && e.state.Engine != t.Engine {
		return nil, fmt.Errorf("%w: engine at %s is %s, not %s", ErrPrecondition, t.Address, e.state.Engine, t.Engine)
	}
	return e, nil
}

// Get implements Client.
func (f *Fake) Get(_ context.Context, t Target) (State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, err := f.engine(t)
	if err != nil {
		return State{}, err
	}
	return e.state.clone(), nil
}

// Watch implements Client.
func (f *Fake) Watch(ctx context.Context, t Target, observe func(State)) error {
	f.mu.Lock()
	e, err := f.engine(t)
	f.mu.Unlock()
	if err != nil {
		return err
	}
	for {
		f.mu.Lock()
		state, changed, broken := e.state.clone(), e.changed, e.broken
		f.mu.Unlock()
		if broken != nil {
			return broken
		}
		observe(state)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		case <-changed:
		}
	}
}

// ReplicaAdd implements Client.
func (f *Fake) ReplicaAdd(_ context.Context, t Target, address string) (State, error) {
	return f.edit(t, "add "+address, func(s *State) error {
		for _, r := range s.Replicas {
			if r.Address == address && r.Mode != ModeERR {
				return nil
			}
		}
		s.Replicas = slices.DeleteFunc(s.Replicas, func(r Replica) bool { return r.Address == address })
		s.Replicas = append(s.Replicas, Replica{Address: address, Mode: ModeWO,
			Rebuild: &Rebuild{Running: true, State: "in_progress"}})
		return nil
	})
}

// ReplicaRemove implements Client.
func (f *Fake) ReplicaRemove(_ context.Context, t Target, address string) (State, error) {
	return f.edit(t, "remove "+address, func(s *State) error {
		others := 0
		var found *Replica
		for i, r := range s.Replicas {
			switch {
			case r.Address == address:
				found = &s.Replicas[i]
			case r.Mode == ModeRW:
				others++
			}
		}
		if found == nil {
			return fmt.Errorf("%w: replica %s", ErrNotFound, address)
		}
		if found.Mode == ModeRW && others == 0 {
			return fmt.Errorf("%w: %s is the last replica in sync", ErrPrecondition, address)
		}
		s.Replicas = slices.DeleteFunc(s.Replicas, func(r Replica) bool { return r.Address == address })
		return nil
	})
}

// Expand implements Client.
func (f *Fake) Expand(_ context.Context, t Target, sizeBytes int64) error {
	_, err := f.edit(t, fmt.Sprintf("expand to %d", sizeBytes), func(s *State) error {
		if sizeBytes < s.SizeBytes {
			return fmt.Errorf("%w: the volume has %d bytes", ErrInvalid, s.SizeBytes)
		}
		s.SizeBytes = sizeBytes
		return nil
	})
	return err
}

func (f *Fake) edit(t Target, what string, edit func(*State) error) (State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, err := f.engine(t)
	if err != nil {
		return State{}, err
	}
	f.calls = append(f.calls, what)
	if err := edit(&e.state); err != nil {
		return State{}, err
	}
	e.wake()
	return e.state.clone(), nil
}

// SnapshotCreate implements Client.
func (f *Fake) SnapshotCreate(_ context.Context, t Target, r SnapshotRequest) (string, error) {
	name := r.Name
	_, err := f.edit(t, "snapshot "+name, func(s *State) error {
		if name == "" {
			name = fmt.Sprintf("snapshot-%d", len(s.Snapshots))
		}
		if s.Snapshots == nil {
			s.Snapshots = map[string]Snapshot{}
		}
		s.Snapshots[name] = Snapshot{Name: name, Labels: r.Labels, UserCreated: r.UserCreated}
		return nil
	})
	return name, err
}

// OptionsSet implements Client for the limits of snapshots and the concurrency of rebuilds.
func (f *Fake) OptionsSet(_ context.Context, t Target, o Options) error {
	_, err := f.edit(t, "set options", func(s *State) error {
		if o.SnapshotMaxCount != nil {
			s.Options.SnapshotMaxCount = o.SnapshotMaxCount
		}
		if o.SnapshotMaxSizeBytes != nil {
			s.Options.SnapshotMaxSizeBytes = o.SnapshotMaxSizeBytes
		}
		if o.RebuildConcurrency != nil {
			s.Options.RebuildConcurrency = o.RebuildConcurrency
		}
		if o.RebuildBandwidth != nil {
			s.Options.RebuildBandwidth = o.RebuildBandwidth
		}
		return nil
	})
	return err
}

// SnapshotRemove implements Client.
func (f *Fake) SnapshotRemove(_ context.Context, t Target, name string) error {
	_, err := f.edit(t, "remove snapshot "+name, func(s *State) error {
		p, ok := s.Snapshots[name]
		if !ok {
			return fmt.Errorf("%w: snapshot %s", ErrNotFound, name)
		}
		p.Removed = true
		s.Snapshots[name] = p
		return nil
	})
	return err
}

// SnapshotClone implements Client: the copy is under way until the test says otherwise.
func (f *Fake) SnapshotClone(_ context.Context, t, source Target, snapshot string) error {
	f.mu.Lock()
	from, err := f.engine(source)
	if err == nil {
		if _, ok := from.state.Snapshots[snapshot]; !ok {
			err = fmt.Errorf("%w: snapshot %s", ErrNotFound, snapshot)
		}
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = f.edit(t, "clone "+source.Volume+"/"+snapshot, func(s *State) error {
		if s.FrontendUp {
			return fmt.Errorf("%w: a frontend is attached", ErrPrecondition)
		}
		s.Clone = Clone{Running: true, State: "in_progress", Snapshot: snapshot}
		return nil
	})
	return err
}

// BackupRestore implements Client: it is under way until the test says otherwise.
func (f *Fake) BackupRestore(_ context.Context, t Target, r RestoreRequest) error {
	_, err := f.edit(t, "restore "+r.URL, func(s *State) error {
		if s.FrontendUp {
			return fmt.Errorf("%w: a frontend is attached", ErrPrecondition)
		}
		_, backup, _ := strings.Cut(r.URL, "backup=")
		backup, _, _ = strings.Cut(backup, "&")
		s.Restore = RestoreProgress{Running: true, State: "in_progress", Backup: backup, URL: r.URL}
		return nil
	})
	return err
}

// Version implements Client.
func (f *Fake) Version(context.Context, Target) (Version, error) {
	return Version{Version: "fake"}, nil
}

// Forget implements Client.
func (f *Fake) Forget(Target) {}

// clone copies what a later edit of the fake could change.
func (s State) clone() State {
	s.Replicas = slices.Clone(s.Replicas)
	snapshots := make(map[string]Snapshot, len(s.Snapshots))
	for k, v := range s.Snapshots {
		snapshots[k] = v
	}
	s.Snapshots = snapshots
	return s
}
