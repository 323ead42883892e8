package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/node/util"

	"ankole.storage/standalone/control"
)

const (
	// nodesTimeout for all nodes to be Ready; on a loaded machine the controllers take their time.
	nodesTimeout = 2 * time.Minute
	// pollInterval of waits that look at the API.
	pollInterval = 100 * time.Millisecond
)

// waitNodes waits until all nodes are Ready and the scheduler may use them.
func (c *Cluster) waitNodes(ctx context.Context) error {
	return c.poll(ctx, nodesTimeout, func(ctx context.Context) (string, error) {
		list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		ready := map[string]bool{}
		for i := range list.Items {
			n := &list.Items[i]
			_, cond := util.GetNodeCondition(&n.Status, v1.NodeReady)
			ready[n.Name] = cond != nil && cond.Status == v1.ConditionTrue && !tainted(n)
		}
		var missing []string
		for k := 1; k <= c.cfg.Nodes; k++ {
			if !ready[nodeName(k)] {
				missing = append(missing, nodeName(k))
			}
		}
		if len(missing) > 0 {
			return "nodes not Ready: " + strings.Join(missing, ", "), nil
		}
		return "", nil
	})
}

// tainted says whether the node controller has not yet lifted the taint of a new or returned node.
func tainted(n *v1.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == v1.TaintNodeNotReady || t.Key == v1.TaintNodeUnreachable {
			return true
		}
	}
	return false
}

// poll calls look until it reports nothing missing.
func (c *Cluster) poll(ctx context.Context, timeout time.Duration,
	look func(context.Context) (missing string, err error)) error {
	limit, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	t := time.NewTicker(pollInterval)
	defer t.Stop()
	for {
		missing, err := look(limit)
		if err == nil && missing == "" {
			return nil
		}
		select {
		case <-c.plane.Down():
			return c.plane.Err()
		case <-limit.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("not ready within %s: %s%s (logs in %s)", timeout, missing, errText(err), c.dir.Path("logs"))
		case <-t.C:
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// startControl takes commands about nodes from now on.
func (c *Cluster) startControl(context.Context) error {
	var err error
	c.control, err = control.Listen(c.dir.Path(), c.command)
	return err
}

// command carries out a request from the control socket.
func (c *Cluster) command(ctx context.Context, r control.Request) error {
	k := 0
	for i := 1; i <= c.cfg.Nodes; i++ {
		if nodeName(i) == r.Node {
			k = i
		}
	}
	if k == 0 {
		return fmt.Errorf("unknown node %q; there are %s to %s", r.Node, nodeName(1), nodeName(c.cfg.Nodes))
	}
	c.mu.Lock()
	a := c.agents[r.Node]
	if a != nil && (r.Command == control.NodeStop || r.Command == control.NodeKill) {
		delete(c.agents, r.Node)
	}
	c.mu.Unlock()
	switch {
	case r.Command == control.NodeStart && a != nil:
		return fmt.Errorf("node %s is running", r.Node)
	case r.Command == control.NodeStart:
		return c.startNode(ctx, k)
	case !slices.Contains(commands, r.Command):
		return fmt.Errorf("unknown command %q; known are %s", r.Command, strings.Join(commands, ", "))
	case a == nil:
		return fmt.Errorf("node %s is not running", r.Node)
	case r.Command == control.NodeStop:
		a.Stop(c.cfg.StopGrace)
	case r.Command == control.NodeHang:
		a.Hang()
	case r.Command == control.NodeResume:
		a.Resume()
	default:
		a.Kill()
	}
	return nil
}

// commands are those that this cluster knows.
var commands = []string{control.NodeStop, control.NodeKill, control.NodeStart, control.NodeHang, control.NodeResume}
