// Package attachment decides where a volume is attached.
//
// Everybody who wants a volume attached (CSI, a user, a snapshot to be taken …) puts a ticket into
// the volume's VolumeAttachment object; the ticket names a node and has a priority by its type.
// This package alone writes the volume's spec.nodeID, with spec.disableFrontend and
// spec.lastAttachedBy: the volume follows the best ticket that can be satisfied, and detaches when
// no ticket wants it where it is. It also tells every ticket whether it is satisfied.
//
// decide is pure. docs/design/volume.md has the rules.
package attachment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
)

// Config of the reconciler.
type Config struct {
	// Namespace of all objects.
	Namespace string
}

// Reconciler looks after attachments. Use New.
type Reconciler struct {
	cfg    Config
	client client.Client
	// live reads past the cache.
	live client.Reader
	// lacking are the tickets that have no VolumeAttachment of Kubernetes.
	lacking *firstseen.Stamps
}

// New returns the reconciler.
func New(cfg Config) *Reconciler { return &Reconciler{cfg: cfg, lacking: firstseen.New()} }

// SetupWithManager registers it; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.client, r.live = mgr.GetClient(), mgr.GetAPIReader()
	return loop.Setup(mgr, r.cfg.Namespace, r.Controller())
}

// WithClient gives the reconciler its client where there is no manager (tests).
func (r *Reconciler) WithClient(c client.Client) *Reconciler {
	r.client, r.live = c, c
	return r
}

// seen is what decide looks at besides the attachment.
type seen struct {
	// Volume is nil when it is gone.
	Volume *v1beta2.Volume
	Nodes  map[string]*v1beta2.Node
	// Runs are the nodes of tickets on which an instance manager runs.
	Runs map[string]bool
	// Cordoned are the nodes of manual tickets from which the setting takes these away.
	Cordoned map[string]bool
	// Abandoned are the tickets whose VolumeAttachment Kubernetes has lost. LookAgain is when that has
	// to be asked again; 0: a change will tell.
	Abandoned []string
	LookAgain time.Duration
}

// Controller describes the loop, for tests that step it by hand.
func (r *Reconciler) Controller() loop.Controller[*v1beta2.VolumeAttachment, seen] {
	return loop.Controller[*v1beta2.VolumeAttachment, seen]{
		Name:   naming.EventSource("volume-attachment"),
		New:    func() *v1beta2.VolumeAttachment { return &v1beta2.VolumeAttachment{} },
		Gather: r.gather,
		Decide: decide,
		Gone: func(_ context.Context, key client.ObjectKey) {
			r.lacking.Keep(func(subject string) bool { return !strings.HasPrefix(subject, key.Name+" ") })
		},
		Watches: []loop.Watch{
			loop.Watching(&v1beta2.Volume{}, loop.BySameName[*v1beta2.Volume]()),
			loop.WatchingChanges(&v1beta2.Node{}, loop.Changed(usable), r.onNode),
			loop.WatchingChanges(&corev1.Node{}, loop.Changed(unschedulable), r.onKubeNode),
			loop.WatchingChanges(&v1beta2.InstanceManager{}, loop.Changed(func(im *v1beta2.InstanceManager) bool {
				return runs(*im)
			}), r.onManager),
			loop.Watching(&v1beta2.Setting{}, r.onSetting),
			loop.WatchingChanges(&storagev1.VolumeAttachment{}, func(_, _ *storagev1.VolumeAttachment) bool { return false },
				r.onPublished),
		},
	}
}

func (r *Reconciler) gather(ctx context.Context, a *v1beta2.VolumeAttachment) (seen, error) {
	s := seen{Nodes: map[string]*v1beta2.Node{}, Runs: map[string]bool{}}
	name := a.Spec.Volume
	if name == "" {
		name = a.Name
	}
	var v v1beta2.Volume
	switch err := r.client.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: name}, &v,
		client.UnsafeDisableDeepCopy); {
	case err == nil:
		s.Volume = &v
	case !apierrors.IsNotFound(err):
		return s, fmt.Errorf("get volume %s: %w", name, err)
	}
	for _, t := range a.Spec.AttachmentTickets {
		if t.NodeID == "" || s.Nodes[t.NodeID] != nil {
			continue
		}
		var n v1beta2.Node
		switch err := r.client.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: t.NodeID}, &n,
			client.UnsafeDisableDeepCopy); {
		case err == nil:
			s.Nodes[t.NodeID] = &n
		case !apierrors.IsNotFound(err):
			return s, fmt.Errorf("get node %s: %w", t.NodeID, err)
		}
		var managers v1beta2.InstanceManagerList
		if err := r.client.List(ctx, &managers, client.InNamespace(a.Namespace), index.OnNode(t.NodeID),
			client.UnsafeDisableDeepCopy); err != nil {
			return s, fmt.Errorf("list instance managers of node %s: %w", t.NodeID, err)
		}
		s.Runs[t.NodeID] = slices.ContainsFunc(managers.Items, runs)
	}
	if err := r.gatherAbandoned(ctx, time.Now(), a, &s); err != nil {
		return s, err
	}
	var err error
	s.Cordoned, err = r.cordonedNodes(ctx, a)
	return s, err
}

// onNode wakes the attachments with a ticket for the node.
func (r *Reconciler) onNode(n *v1beta2.Node) []string { return r.withTicketFor(n.Name) }

// onManager does it for the node of an instance manager.
func (r *Reconciler) onManager(im *v1beta2.InstanceManager) []string {
	return r.withTicketFor(im.Spec.NodeID)
}

func runs(im v1beta2.InstanceManager) bool {
	return im.Status.CurrentState == v1beta2.InstanceManagerStateRunning
}

// onKubeNode does it for the node as Kubernetes has it.
func (r *Reconciler) onKubeNode(n *corev1.Node) []string { return r.withTicketFor(n.Name) }

func (r *Reconciler) withTicketFor(node string) []string {
	var list v1beta2.VolumeAttachmentList
	if err := r.client.List(context.Background(), &list, client.InNamespace(r.cfg.Namespace), index.OnNode(node),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache does not fail; the volume's change wakes it too
	}
	out := make([]string, len(list.Items))
	for i := range list.Items {
		out[i] = list.Items[i].Name
	}
	return out
}

// usability is what of a node decides whether a ticket for it can win.
type usability struct {
	ready    v1beta2.ConditionStatus
	reason   string
	deleting bool
}

func usable(n *v1beta2.Node) usability {
	c := v1beta2.FindCondition(n.Status.Conditions, v1beta2.NodeConditionReady)
	return usability{c.Status, c.Reason, n.DeletionTimestamp != nil}
}
