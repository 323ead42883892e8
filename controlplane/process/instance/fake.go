package instance

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"ankole.storage/api/longhorn/v1beta2"
)

// Fake is a Processes that only notes what it is asked for, for tests.
type Fake struct {
	mu sync.Mutex
	// Orders are "create <instance manager>/<process>", "delete …", with "@<UUID>" if one is named,
	// and "delete last …", in order.
	orders  []string
	Created []Process
	// Replaced is what Replace answers.
	Replaced error
	// Unlisted is what Get answers by name; ones that are not in it are not there.
	Unlisted map[string]*v1beta2.InstanceProcess
	// Silent is the error that Get has.
	Silent error
}

// Create implements Processes.
func (f *Fake) Create(_ context.Context, im *v1beta2.InstanceManager, p Process) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.orders = append(f.orders, fmt.Sprintf("create %s/%s", im.Name, p.Name))
	f.Created = append(f.Created, p)
	return nil
}

// Get implements Processes.
func (f *Fake) Get(_ context.Context, _ *v1beta2.InstanceManager, name string) (*v1beta2.InstanceProcess, error) {
	return f.Unlisted[name], f.Silent
}

// Delete implements Processes.
func (f *Fake) Delete(_ context.Context, im *v1beta2.InstanceManager, name, uuid string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	order := fmt.Sprintf("delete %s/%s", im.Name, name)
	if uuid != "" {
		order += "@" + uuid
	}
	f.orders = append(f.orders, order)
	return nil
}

// DeleteLast implements Processes.
func (f *Fake) DeleteLast(_ context.Context, im *v1beta2.InstanceManager, name, uuid string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	order := fmt.Sprintf("delete last %s/%s", im.Name, name)
	if uuid != "" {
		order += "@" + uuid
	}
	f.orders = append(f.orders, order)
	return nil
}

// Replace implements Processes.
func (f *Fake) Replace(_ context.Context, im *v1beta2.InstanceManager, p Process) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.orders = append(f.orders, fmt.Sprintf("replace %s/%s", im.Name, p.Name))
	f.Created = append(f.Created, p)
	return f.Replaced
}

// Orders returns what was asked for so far.
func (f *Fake) Orders() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.orders)
}
