package objecttest

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"ankole.storage/backup/object"
)

// Memory is a back end in memory.
type Memory struct {
	// Now is the clock of the store. Nil: that of the process.
	Now func() time.Time
	// Before is called with each operation ("get", "put", "commit", "stat", "list", "after",
	// "delete") before it takes place; staging is a "put". If it returns an error the operation fails
	// with that and has no effect.
	Before func(op, name string) error
	// AtOnce is what ListsAtOnce returns.
	AtOnce bool

	mu      sync.Mutex
	objects map[string]stored
	staged  map[string][]byte
	count   map[string]int
}

type stored struct {
	data     []byte
	modified time.Time
}

var _ object.Store = (*Memory)(nil)

func (m *Memory) String() string { return "memory" }

// ListsAtOnce is that of object.Store.
func (m *Memory) ListsAtOnce() bool { return m.AtOnce }

// begin checks what is common to all operations.
func (m *Memory) begin(ctx context.Context, op, name string) error {
	check := object.CheckName
	switch op {
	case "list", "after":
		check = object.CheckFolder
	case "commit":
		check = func(string) error { return nil }
	}
	if err := check(name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	if m.count == nil {
		m.count = map[string]int{}
	}
	m.count[op]++
	m.mu.Unlock()
	if m.Before != nil {
		return m.Before(op, name)
	}
	return nil
}

// Counts returns how often each operation was called since the last call of Counts.
func (m *Memory) Counts() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.count
	m.count = nil
	return c
}

// Get is that of object.Store.
func (m *Memory) Get(ctx context.Context, name string, buf []byte, limitBytes int64) ([]byte, error) {
	if err := m.begin(ctx, "get", name); err != nil {
		return buf, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[name]
	if !ok {
		return buf, fmt.Errorf("%s: %w", name, object.ErrNotFound)
	}
	if int64(len(o.data)) > limitBytes {
		return buf, fmt.Errorf("%s has %d bytes, more than %d: %w", name, len(o.data), limitBytes, object.ErrTooLong)
	}
	return append(buf, o.data...), nil
}

// Put is that of object.Store.
func (m *Memory) Put(ctx context.Context, name string, data []byte) error {
	if err := m.begin(ctx, "put", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store(name, data)
	return nil
}

func (m *Memory) store(name string, data []byte) {
	now := time.Now
	if m.Now != nil {
		now = m.Now
	}
	if m.objects == nil {
		m.objects = map[string]stored{}
	}
	m.objects[name] = stored{bytes.Clone(data), now()}
}

// Stage is that of object.Store. The content is nowhere to be seen before it is committed.
func (m *Memory) Stage(ctx context.Context, name string, data []byte) error {
	if err := m.begin(ctx, "put", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.staged == nil {
		m.staged = map[string][]byte{}
	}
	m.staged[name] = bytes.Clone(data)
	return nil
}

// Commit is that of object.Store.
func (m *Memory) Commit(ctx context.Context) error {
	if err := m.begin(ctx, "commit", ""); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, data := range m.staged {
		m.store(name, data)
	}
	m.staged = nil
	return nil
}

// Crash drops what is staged, as the end of the process that has staged it does.
func (m *Memory) Crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.staged = nil
}

// Stat is that of object.Store.
func (m *Memory) Stat(ctx context.Context, name string) (object.Info, error) {
	if err := m.begin(ctx, "stat", name); err != nil {
		return object.Info{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[name]
	if !ok {
		return object.Info{}, fmt.Errorf("%s: %w", name, object.ErrNotFound)
	}
	return object.Info{Name: name, SizeBytes: int64(len(o.data)), Modified: o.modified}, nil
}

// Delete is that of object.Store.
func (m *Memory) Delete(ctx context.Context, name string) error {
	if err := m.begin(ctx, "delete", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
	return nil
}

// List is that of object.Store.
func (m *Memory) List(ctx context.Context, folder string, deep bool) iter.Seq2[object.Info, error] {
	return func(yield func(object.Info, error) bool) {
		if err := m.begin(ctx, "list", folder); err != nil {
			yield(object.Info{}, err)
			return
		}
		for _, info := range m.below(folder, deep) {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// After is that of object.Store.
func (m *Memory) After(ctx context.Context, folder, after string, most int) ([]object.Info, error) {
	if err := m.begin(ctx, "after", folder); err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(m.below(folder, true), func(i object.Info) bool { return i.Name <= after })
	return found[:min(most, len(found))], nil
}

func (m *Memory) below(folder string, deep bool) (found []object.Info) {
	m.mu.Lock()
	defer m.mu.Unlock()
	folders := map[string]bool{}
	for name, o := range m.objects {
		rest, ok := strings.CutPrefix(name, folder)
		if !ok {
			continue
		}
		if sub, _, nested := strings.Cut(rest, "/"); nested && !deep {
			if sub = folder + sub + "/"; !folders[sub] {
				folders[sub] = true
				found = append(found, object.Info{Name: sub})
			}
			continue
		}
		found = append(found, object.Info{Name: name, SizeBytes: int64(len(o.data)), Modified: o.modified})
	}
	slices.SortFunc(found, func(a, b object.Info) int { return strings.Compare(a.Name, b.Name) })
	return found
}
