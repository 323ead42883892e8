// Package workload deletes Pods that use volumes where nothing else would help them: Pods that hang
// on a node that is down (Nodes), and Pods that still have a volume mounted which was lost under
// them and is there again (Remounts). Their controllers make them anew.
//
// It reads Pods, PersistentVolumes and Kubernetes' VolumeAttachments from the API server when one
// of these cases is there: without such a case it costs nothing. Of Pods it hears that they are
// deleted, from the cache that package claim has of them. The decide functions are pure;
// docs/design/workload.md has their tables.
package workload

import (
	"time"

	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/firstseen"
)

// Reconciler is Nodes and Remounts. Use New.
type Reconciler struct {
	nodes    *nodes
	remounts *remounts
}

// New returns the reconciler for the Nodes and Volumes of a namespace.
func New(namespace string) *Reconciler {
	return &Reconciler{nodes: &nodes{namespace: namespace, now: time.Now, deleted: firstseen.New()},
		remounts: &remounts{namespace: namespace, done: map[string]string{}, requested: firstseen.New(), now: time.Now,
			concerned: map[string]recovery{}}}
}

// SetupWithManager registers both; they run on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.WithClient(mgr.GetClient(), mgr.GetAPIReader())
	if err := loop.Setup(mgr, r.nodes.namespace, r.nodes.controller()); err != nil {
		return fmt.Errorf("register what deletes Pods of lost nodes: %w", err)
	}
	if err := loop.Setup(mgr, r.remounts.namespace, r.remounts.controller()); err != nil {
		return fmt.Errorf("register what deletes Pods that have to mount again: %w", err)
	}
	return nil
}

// WithClient gives the reconciler its clients where there is no manager (tests); live reads objects
// of all namespaces from the API server.
func (r *Reconciler) WithClient(c client.Client, live client.Reader) *Reconciler {
	r.nodes.client, r.nodes.live = c, live
	r.remounts.client, r.remounts.live = c, live
	return r
}

// deletion is the order to delete an object if it is the one that was read.
type deletion struct {
	Object client.Object
	Grace  *int64
}

func (d deletion) carry(ctx context.Context, c client.Client) error {
	uid, version := d.Object.GetUID(), d.Object.GetResourceVersion()
	err := c.Delete(ctx, d.Object, &client.DeleteOptions{GracePeriodSeconds: d.Grace,
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	return client.IgnoreNotFound(err)
}
