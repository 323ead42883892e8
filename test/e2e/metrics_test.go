package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// samples are the lines of a metric about a volume, of any if it is empty, that the manager at an
// address serves.
func (c *cluster) samples(ctx context.Context, address, metric, volume string) ([]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+":9500/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		about := volume == "" || strings.Contains(line, `volume="`+volume+`"`)
		if about && (strings.HasPrefix(line, metric+"{") || strings.HasPrefix(line, metric+" ")) {
			out = append(out, line)
		}
	}
	return out, nil
}

// metrics: every manager reports the objects of its node, and nobody those of another. The rates
// come from the engine, and the series go with the volume.
func metrics(t *testing.T, c *cluster) {
	c.create("measured", 64*mib, 2)
	c.attach("measured", "node-3", 2)
	removed := false
	defer func() {
		if !removed {
			c.remove("measured")
		}
	}()
	one := func(ctx context.Context, node int, metric, volume string, want int) error {
		n := c.Nodes[node-1]
		found, err := c.samples(ctx, n.Address, metric, volume)
		if err == nil && len(found) != want {
			err = fmt.Errorf("node %d has %d samples of %s, want %d: %v", node, len(found), metric, want, found)
		}
		return err
	}
	c.eventually("each manager reports its own, and nothing twice", func(ctx context.Context) error {
		for node := 1; node <= 3; node++ {
			owns := 0
			if node == 3 {
				owns = 1
			}
			for metric, want := range map[string]int{"longhorn_volume_capacity_bytes": owns, "longhorn_engine_info": owns,
				"longhorn_volume_read_iops": owns, "longhorn_volume_state": 6 * owns} {
				if err := one(ctx, node, metric, "measured", want); err != nil {
					return err
				}
			}
			for metric, want := range map[string]int{"longhorn_node_count_total": 1, "longhorn_disk_capacity_bytes": 1,
				"longhorn_instance_manager_cpu_requests_millicpu": 1, "ankole_manager_up": 1} {
				if err := one(ctx, node, metric, "", want); err != nil {
					return err
				}
			}
		}
		return nil
	})
	c.remove("measured")
	removed = true
	c.eventually("the series go with the volume", func(ctx context.Context) error {
		for node := 1; node <= 3; node++ {
			if err := one(ctx, node, "longhorn_volume_capacity_bytes", "measured", 0); err != nil {
				return err
			}
		}
		return nil
	})
}
