package node

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"ankole.storage/csi/request"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// stated is a manager that states where nodes are and what settings say, and notes what it is told.
// It has no other calls.
type stated struct {
	request.Manager
	mu       sync.Mutex
	nodes    []resource.Node
	settings map[string]string
	away     bool                          // nobody answers
	kept     []resource.DeviceKeepersInput // what was told of who keeps a volume
}

// newManager knows one node, and allows no keys.
func newManager() *stated {
	return &stated{nodes: []resource.Node{{Name: "node-1", Zone: "zone-1", Region: "region-1"}},
		settings: map[string]string{request.TopologySetting: ""}}
}

// answers reports whether anybody does.
func (m *stated) answers() error {
	if m.away {
		return fmt.Errorf("%w: away for a test", client.ErrUnreachable)
	}
	return nil
}

func (m *stated) Node(_ context.Context, name string) (*resource.Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.answers(); err != nil {
		return nil, err
	}
	for i := range m.nodes {
		if m.nodes[i].Name == name {
			return &m.nodes[i], nil
		}
	}
	return nil, &client.Error{Status: http.StatusNotFound, Path: name}
}

func (m *stated) Setting(_ context.Context, name string) (*resource.Setting, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &resource.Setting{Name: name, Value: m.settings[name]}, m.answers()
}

func (m *stated) TellDeviceKeepers(_ context.Context, _ string, in resource.DeviceKeepersInput) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = append(m.kept, in)
	return nil
}
