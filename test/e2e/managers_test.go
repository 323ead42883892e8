package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
)

// addresses are those of the ready Pods of controllers or agents, by label app, in the order of
// their nodes' names; an error while there are fewer than one for each node, up to three.
func (c *cluster) addresses(ctx context.Context, app string) (out []string, err error) {
	pods, err := kubernetesOf(c.t, c).CoreV1().Pods(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: naming.LabelApp + "=" + app})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	for i := range pods.Items {
		if p := &pods.Items[i]; condition.PodReady(p) && p.DeletionTimestamp == nil {
			out = append(out, p.Status.PodIP)
		}
	}
	if want := min(len(c.Nodes), 3); len(out) < want {
		return nil, fmt.Errorf("%d of %d Pods of %s are ready", len(out), want, app)
	}
	return out, nil
}

// controllers waits for the controllers and returns their addresses.
func (c *cluster) controllers() (out []string) {
	c.t.Helper()
	c.eventually("the controllers are ready", func(ctx context.Context) (err error) {
		out, err = c.addresses(ctx, naming.AppController)
		return err
	})
	return out
}
