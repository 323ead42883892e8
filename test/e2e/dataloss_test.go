package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
)

// acceptLoss: a volume of two goes on without one of its replicas, and then the disk of the other
// one, which has the newest data, is lost. The volume starts from the old copy once a person says
// so, and not before; what was decided is over then.
func acceptLoss(t *testing.T, c *cluster) {
	const limit = "concurrent-replica-rebuild-per-node-limit"
	before, err := c.rest.Setting(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	set := func(value string) {
		if _, err := c.rest.SetSetting(context.Background(), limit, value); err != nil {
			t.Fatal(err)
		}
	}
	c.create("loss", cloneSize, 2)
	defer c.remove("loss")
	endpoint := c.attach("loss", "node-1", 2)
	d := c.device(endpoint)
	fill(t, d, 1)
	old := hashDevice(t, c, endpoint)
	set("0") // the replica that is killed stays behind
	defer set(before.Value)
	stale := c.memberOn("loss", "node-1", true)
	c.kill("/replicas/" + stale)
	m := c.awaitMembership("loss", "one member", func(m *longhorn.Membership) bool { return len(m.Members) == 1 })
	fill(t, d, 2)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.rest.AcceptDataLoss(t.Context(), "loss", resource.AcceptDataLossInput{Members: []string{stale},
		RecordEpoch: m.RecordEpoch, Generation: m.Generation}); err == nil || !strings.Contains(err.Error(), "serves") {
		t.Errorf("loss accepted of a volume that is served: %v", err)
	}
	c.detach("loss")
	c.loseDirectory("loss", m.Members[0])
	endpoint = c.startFromOld("loss", stale, m)
	holds(t, c, endpoint, old, "the old copy has another content than it had")
	set(before.Value)
	c.awaitUsable("loss", "node-1", 2)
	c.detach("loss")
	c.identical("loss", 2)
}

// startFromOld has a volume that cannot start go on with an old copy, whose endpoint it returns. m
// is the record, whose only member is lost.
func (c *cluster) startFromOld(name, stale string, m *longhorn.Membership) (endpoint string) {
	t := c.t
	if _, err := c.rest.AttachVolume(t.Context(), name, resource.AttachInput{HostID: "node-1"}); err != nil {
		t.Fatal(err)
	}
	c.eventually("the volume cannot start", func(context.Context) error {
		if v := c.volume(name); v.Robustness != "faulted" {
			return fmt.Errorf("%s %s", v.State, v.Robustness)
		}
		return nil
	})
	status, out, stderr := c.ankole(t, "volume", "accept-data-loss", name)
	if status != 0 || !strings.Contains(out, stale) || !strings.Contains(out, "lacks writes") ||
		!strings.Contains(out, "held by "+m.Members[0]) {
		t.Errorf("status %d\n%s%s", status, out, stderr)
	}
	if _, err := c.rest.AcceptDataLoss(t.Context(), name, resource.AcceptDataLossInput{Members: []string{stale},
		RecordEpoch: m.RecordEpoch, Generation: m.Generation + 1}); err == nil ||
		!strings.Contains(err.Error(), "look again") {
		t.Errorf("loss accepted for another record: %v", err)
	}
	status, out, stderr = c.ankole(t, "volume", "accept-data-loss", name, "--copy", stale, "--yes")
	if status != 0 || !strings.Contains(out, "Given up: "+m.Members[0]) || !strings.Contains(out, "accepted for record") {
		t.Fatalf("status %d\n%s%s", status, out, stderr)
	}
	endpoint = c.attach(name, "node-1", 1)
	after := c.awaitMembership(name, "the old copy", func(m *longhorn.Membership) bool {
		return len(m.Members) == 1 && m.Members[0] == stale
	})
	c.eventually("the decision is over", func(ctx context.Context) error {
		shown, err := c.rest.DataLoss(ctx, name)
		if err == nil && (len(shown.Decided) > 0 || shown.Generation != after.Generation) {
			err = fmt.Errorf("%+v", shown)
		}
		return err
	})
	return endpoint
}

// memberOn returns the data directory of the volume's replica on a node, or of another one.
func (c *cluster) memberOn(volume, node string, not bool) string {
	c.t.Helper()
	for _, dir := range c.replicaDirs(volume) {
		on := false
		for _, n := range c.Nodes {
			on = on || n.Name == node && strings.HasPrefix(dir, n.Root+string(filepath.Separator))
		}
		if on != not {
			return filepath.Base(dir)
		}
	}
	c.t.Fatalf("volume %s has no such replica", volume)
	return ""
}

// loseDirectory removes what is in a replica's directory, as a disk that was exchanged.
func (c *cluster) loseDirectory(volume, member string) {
	c.t.Helper()
	for _, dir := range c.replicaDirs(volume) {
		if filepath.Base(dir) != member {
			continue
		}
		c.eventually("nobody uses "+dir, func(context.Context) error {
			if pids := holding(c.Info.Dir, dir); len(pids) > 0 {
				return fmt.Errorf("%v", pids)
			}
			return nil
		})
		if err := os.RemoveAll(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			c.t.Fatal(err)
		}
		return
	}
	c.t.Fatalf("volume %s has no member %s", volume, member)
}
