package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// scenario is one of several that run on one cluster.
type scenario struct {
	name string
	run  func(*testing.T, *cluster)
}

// each runs scenarios one after the other. What a failed one has left is taken back, so that the
// results of those after it mean something.
func (c *cluster) each(t *testing.T, scenarios []scenario) {
	before := c.settings(t)
	for _, s := range scenarios {
		passed := t.Run(s.name, func(t *testing.T) {
			outer := c.t
			c.t = t
			defer func() { c.t = outer }()
			s.run(t, c)
		})
		if !passed {
			c.takeBack(t, before)
		}
	}
}

func (c *cluster) settings(t *testing.T) map[string]string {
	t.Helper()
	list, err := c.rest.Settings(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, s := range list {
		values[s.Name] = s.Value
	}
	return values
}

// takeBack lets the API server answer again, makes every node schedulable, gives settings their
// values and removes all volumes. What it cannot do is told: the scenario has failed already.
func (c *cluster) takeBack(t *testing.T, settings map[string]string) {
	t.Helper()
	c.Thaw(t)
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	nodes := kubernetesOf(t, c).CoreV1().Nodes()
	for _, n := range c.Nodes {
		if _, err := nodes.Patch(ctx, n.Name, types.MergePatchType, []byte(`{"spec":{"unschedulable":false}}`),
			metav1.PatchOptions{}); err != nil {
			t.Logf("node %s after a failure: %v", n.Name, err)
		}
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		err := errors.Join(c.removeVolumes(ctx), c.resetSettings(ctx, settings))
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Logf("after a failure: %v", err)
			return
		case <-tick.C:
		}
	}
}

func (c *cluster) removeVolumes(ctx context.Context) error {
	volumes, err := c.rest.Volumes(ctx)
	if err != nil {
		return err
	}
	for i := range volumes {
		err = errors.Join(err, c.rest.DeleteVolume(ctx, volumes[i].Name))
	}
	if err == nil && len(volumes) > 0 {
		err = errors.New("volumes are being deleted")
	}
	return err
}

func (c *cluster) resetSettings(ctx context.Context, values map[string]string) error {
	list, err := c.rest.Settings(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		if want, ok := values[s.Name]; ok && want != s.Value {
			_, failed := c.rest.SetSetting(ctx, s.Name, want)
			err = errors.Join(err, failed)
		}
	}
	return err
}
