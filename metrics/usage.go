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

// usage asks the metrics API of the cluster what the own node, the own Pod and the instance
// managers of the node use. It is safe for concurrent use.
type usage struct {
	get func(ctx context.Context, path string) ([]byte, error)
	now func() time.Time

	mu    sync.Mutex
	next  time.Time
	node  *used
	byPod map[string]used
}

// ask returns what the node and the Pods use: nil, or without an entry, where that is not known.
func (u *usage) ask(ctx context.Context, namespace, node string, pods []string) (*used, map[string]used) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := u.now(); !now.Before(u.next) {
		u.refresh(ctx, namespace, node, pods)
	}
	return u.node, u.byPod
}

// forget drops the figures (the setting is off).
func (u *usage) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.node, u.byPod, u.next = nil, nil, time.Time{}
}

func (u *usage) refresh(ctx context.Context, namespace, node string, pods []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), usageTimeout)
	defer cancel()
	u.node, u.byPod = nil, map[string]used{}
	of, err := u.read(ctx, metricsAPI+"nodes/"+node)
	at := u.now()
	if err != nil {
		slog.Debug("no figures of the metrics API", "err", err)
		u.next = at.Add(usageAgain)
		return
	}
	u.node, u.next = &of, at.Add(usageLife)
	for _, pod := range pods {
		if of, err := u.read(ctx, metricsAPI+"namespaces/"+namespace+"/pods/"+pod); err == nil {
			u.byPod[pod] = of
		}
	}
}

// amounts is a part of an answer.
type amounts struct {
	CPU    *resource.Quantity `json:"cpu"`
	Memory *resource.Quantity `json:"memory"`
}

// read asks for one node or Pod.
func (u *usage) read(ctx context.Context, path string) (used, error) {
	text, err := u.get(ctx, path)
	if err != nil {
		return used{}, err
	}
	var answer struct {
		Usage      *amounts `json:"usage"`
		Containers []struct {
			Usage amounts `json:"usage"`
		} `json:"containers"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return used{}, fmt.Errorf("answer of the metrics API: %w", err)
	}
	var parts []amounts
	if answer.Usage != nil {
		parts = append(parts, *answer.Usage)
	}
	for _, c := range answer.Containers {
		parts = append(parts, c.Usage)
	}
	if len(parts) == 0 {
		return used{}, fmt.Errorf("answer of the metrics API to %s has no figures", path)
	}
	var out used
	for _, p := range parts {
		if p.CPU == nil || p.Memory == nil {
			return used{}, fmt.Errorf("answer of the metrics API to %s has no CPU or memory", path)
		}
		out.MilliCPU += float64(p.CPU.MilliValue())
		out.Bytes += float64(p.Memory.Value())
	}
	return out, nil
}
