package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/csi/request"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

const (
	// placeFile is where a driver remembers its node's topology, beside its socket.
	placeFile = "topology.json"
	// askPatience bounds a question for the topology: the kubelet has no driver until it is answered,
	// and without a driver no Pod with a volume starts or stops on the node.
	askPatience = 5 * time.Second
	// askPause is between two questions while the manager does not answer.
	askPause = 10 * time.Second
)

// place is the topology of this node, as the manager knows it. What it said last is remembered in a
// file, since the kubelet asks whenever it or the driver starts, the manager being there or not.
type place struct {
	id      string
	manager request.Manager
	log     *slog.Logger
	// file has the segments that were last known; empty: they are not kept.
	file string

	mu sync.Mutex
	// told is what the kubelet was told last; unsure: the manager did not say so.
	told   map[string]string
	unsure bool
	// changed says that the kubelet was told something else than what is so.
	changed chan struct{}
}

func newPlace(id string, m request.Manager, log *slog.Logger) *place {
	return &place{id: id, manager: m, log: log, changed: make(chan struct{}, 1)}
}

// ask asks the manager: of the node's segments those that the setting allows, none by default.
func (p *place) ask(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	known, err := p.manager.Node(ctx, p.id)
	if client.IsNotFound(err) {
		return nil, errNoManager
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", p.id, err)
	}
	keys, err := request.TopologyKeys(ctx, p.manager)
	if err != nil {
		return nil, fmt.Errorf("reading setting %s: %w", request.TopologySetting, err)
	}
	if len(keys) == 0 {
		return map[string]string{}, nil
	}
	return segments(known, keys), nil
}

// segments of a node, of the keys allowed.
func segments(n *resource.Node, keys []string) map[string]string {
	all := map[string]string{request.LabelZone: n.Zone, request.LabelRegion: n.Region, request.LabelHost: n.Name}
	maps.DeleteFunc(all, func(key, value string) bool { return value == "" || !slices.Contains(keys, key) })
	return all
}

// errNoManager: no manager has ever run on the node, so that no volume can be attached to it.
var errNoManager = errors.New("no longhorn-manager runs on this node")

// segments of the node for the kubelet: what the manager says, else what it said last, else none.
// An error: the node has no manager.
func (p *place) segments(ctx context.Context) (map[string]string, error) {
	now, err := p.ask(ctx)
	switch {
	case err == nil:
		if err := p.remember(now); err != nil {
			p.log.Warn("the topology of this node cannot be kept", "error", err)
		}
		p.tell(now, false)
		return now, nil
	case errors.Is(err, errNoManager):
		p.tell(nil, false)
		return nil, err
	}
	last, missing := p.recall()
	p.log.Warn("the manager does not say where this node is, the last answer holds", "error", err, "topology", last,
		"kept", missing == nil)
	p.tell(last, true)
	return last, nil
}

func (p *place) tell(segments map[string]string, unsure bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told, p.unsure = segments, unsure
}

// review asks again what the manager did not answer when the kubelet asked. It runs until the
// context ends.
func (p *place) review(ctx context.Context, pause time.Duration) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		p.mu.Lock()
		told, unsure := p.told, p.unsure
		p.mu.Unlock()
		if !unsure {
			continue
		}
		now, err := p.ask(ctx)
		away := errors.Is(err, errNoManager)
		if err != nil && !away {
			continue
		}
		p.tell(told, false)
		if !away {
			err = p.remember(now)
		}
		if err != nil && !away {
			p.log.Warn("the topology of this node cannot be kept", "error", err)
		}
		if away || !maps.Equal(told, now) {
			select {
			case p.changed <- struct{}{}:
			default: // it is known already
			}
		}
	}
}

// remember keeps what the manager said. The file is replaced as a whole.
func (p *place) remember(segments map[string]string) error {
	if p.file == "" {
		return nil
	}
	text, err := json.Marshal(segments)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(p.file); err == nil && string(old) == string(text) {
		return nil
	}
	next := p.file + ".new"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, p.file)
}

// recall reads what the manager said last.
func (p *place) recall() (segments map[string]string, err error) {
	if p.file == "" {
		return nil, errors.New("nothing is kept")
	}
	text, err := os.ReadFile(p.file)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &segments); err != nil {
		return nil, err
	}
	return segments, nil
}

// KeepTopology has what the manager says of the node's topology remembered in a directory, for the
// time when it does not answer. It is called before the node service serves.
func (n *Server) KeepTopology(dir string) { n.place.file = filepath.Join(dir, placeFile) }

// TopologyChanged receives when the kubelet was told another topology than the node has: the driver
// is to be registered anew.
func (n *Server) TopologyChanged() <-chan struct{} { return n.place.changed }

// ReviewTopology asks the manager for the topology again while it has not answered, until the
// context ends, whose error it returns.
func (n *Server) ReviewTopology(ctx context.Context) error { return n.place.review(ctx, askPause) }

// NodeGetInfo implements the node service. The kubelet asks when the driver registers, and without
// an answer takes it for none that could be used: then no Pod with a volume starts or stops here.
// So it is on a node without a manager, whose volumes would be attached to nothing.
func (n *Server) NodeGetInfo(ctx context.Context, _ *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	out := &spec.NodeGetInfoResponse{NodeId: n.id}
	part, err := n.place.segments(ctx)
	if err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "node %s: %v, so that Pods with volumes cannot run here: let DaemonSet "+
			"longhorn-manager run on it (values nodeSelector and tolerations of the chart)", n.id, err)
	}
	if len(part) > 0 {
		out.AccessibleTopology = &spec.Topology{Segments: part}
	}
	return out, nil
}
