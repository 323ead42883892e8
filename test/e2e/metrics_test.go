package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"ankole.storage/controlplane/object/naming"
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

// metrics: the leader reports all objects, other controllers and agents nothing but themselves. The
// rates come from the engine, and the series go with the volume.
func metrics(t *testing.T, c *cluster) {
	c.create("measured", 64*mib, 2)
	c.attach("measured", "node-3", 2)
	removed := false
	defer func() {
		if !removed {
			c.remove("measured")
		}
	}()
	sum := func(ctx context.Context, metric, volume string, want int) error {
		n := 0
		controllers, err := c.addresses(ctx, naming.AppController)
		if err != nil {
			return err
		}
		for _, address := range controllers {
			found, err := c.samples(ctx, address, metric, volume)
			if err != nil {
				return err
			}
			n += len(found)
		}
		if n != want {
			c.t.Logf("DBG %d samples of %s, want %d", n, metric, want)
			return fmt.Errorf("%d samples of %s, want %d", n, metric, want)
		}
		return nil
	}
	c.eventually("everything is reported once, and agents report themselves", func(ctx context.Context) error {
		for metric, want := range map[string]int{"longhorn_volume_capacity_bytes": 1, "longhorn_engine_info": 1,
			"longhorn_volume_read_iops": 1, "longhorn_volume_state": 6} {
			if err := sum(ctx, metric, "measured", want); err != nil {
				return err
			}
		}
		for metric, want := range map[string]int{"longhorn_node_count_total": 1, "longhorn_disk_capacity_bytes": 3,
			"longhorn_instance_manager_cpu_requests_millicpu": 3, "ankole_controller_leads": 3} {
			if err := sum(ctx, metric, "", want); err != nil {
				return err
			}
		}
		agents, err := c.addresses(ctx, naming.AppManager)
		if err != nil {
			return err
		}
		for _, address := range agents {
			if own, err := c.samples(ctx, address, "process_cpu_seconds_total", ""); err != nil || len(own) != 1 {
				c.t.Logf("DBG agent at %s: %v, %v", address, own, err)
				return fmt.Errorf("agent at %s: %v, %w", address, own, err)
			}
			if others, err := c.samples(ctx, address, "longhorn_volume_capacity_bytes", ""); err != nil || len(others) != 0 {
				return fmt.Errorf("agent at %s: %v, %w", address, others, err)
			}
		}
		return nil
	})
	c.remove("measured")
	removed = true
	c.eventually("the series go with the volume", func(ctx context.Context) error {
		return sum(ctx, "longhorn_volume_capacity_bytes", "measured", 0)
	})
}
