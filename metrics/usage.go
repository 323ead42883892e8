package metrics

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// usageLife is how long figures of the metrics API are used; it has new ones every 15 s by
	// default.
	usageLife = 30 * time.Second
	// usageAgain is when a metrics API is asked again that has not answered: most clusters without
	// one will not get one.
	usageAgain = 2 * time.Minute
	// metricsAPI is where the metrics server answers.
	metricsAPI = "/apis/metrics.k8s.io/v1beta1/"
)

// used is what a node or Pod uses.
type used struct {
	MilliCPU, Bytes float64
}

// usage asks the metrics API of the cluster what its nodes and the Pods of the namespace use. It is
// safe for concurrent use.
type usage struct {
	get func(ctx context.Context, path string) ([]byte, error)
	now func() time.Time

	mu          sync.Mutex
	next        time.Time
	nodes, pods map[string]used
}

// ask returns what is used by name; without an entry what is not known.
func (u *usage) ask(ctx context.Context, namespace string) (nodes, pods map[string]used) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := u.now(); !now.Before(u.next) {
		u.refresh(ctx, namespace)
	}
	return u.nodes, u.pods
}

// forget drops the figures (the setting is off).
func (u *usage) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.nodes, u.pods, u.next = nil, nil, time.Time{}
}

func (u *usage) refresh(ctx context.Context, namespace string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), usageTimeout)
	defer cancel()
	u.nodes, u.pods = nil, nil
	nodes, err := u.read(ctx, metricsAPI+"nodes")
	at := u.now()
	if err != nil {
		slog.Debug("no figures of the metrics API", "err", err)
		u.next = at.Add(usageAgain)
		return
	}
	u.nodes, u.next = nodes, at.Add(usageLife)
	if u.pods, err = u.read(ctx, metricsAPI+"namespaces/"+namespace+"/pods"); err != nil {
		slog.Debug("no figures of Pods of the metrics API", "err", err)
	}
}

// amounts is a part of an answer.
type amounts struct {
	CPU    *resource.Quantity `json:"cpu"`
	Memory *resource.Quantity `json:"memory"`
}

// read asks for all nodes or Pods. One without figures has no entry.
func (u *usage) read(ctx context.Context, path string) (map[string]used, error) {
	text, err := u.get(ctx, path)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Usage      *amounts `json:"usage"`
			Containers []struct {
				Usage amounts `json:"usage"`
			} `json:"containers"`
		} `json:"items"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("answer of the metrics API: %w", err)
	}
	out := map[string]used{}
	for _, item := range answer.Items {
		var parts []amounts
		if item.Usage != nil {
			parts = append(parts, *item.Usage)
		}
		for _, c := range item.Containers {
			parts = append(parts, c.Usage)
		}
		if sum, known := add(parts); known {
			out[item.Metadata.Name] = sum
		}
	}
	return out, nil
}

// add is the sum of the parts; known is false if one is missing, or all are.
func add(parts []amounts) (sum used, known bool) {
	for _, p := range parts {
		if p.CPU == nil || p.Memory == nil {
			return used{}, false
		}
		sum.MilliCPU += float64(p.CPU.MilliValue())
		sum.Bytes += float64(p.Memory.Value())
	}
	return sum, len(parts) > 0
}
