package instancemanager

import (
	"context"
	"fmt"
	"regexp"

	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/naming"
	"ankole.storage/controlplane/setting"
)

// engineName matches names of engine processes: the volume, "-e-", and a last part without a dash.
var engineName = regexp.MustCompile(`^.+-e-[^-]+$`)

func isEngineName(process string) bool { return engineName.MatchString(process) }

// Values of setting node-drain-policy.
const (
	drainAlways    = "always-allow"
	drainIfStopped = "allow-if-replica-is-stopped"
	// DrainEviction and DrainEvictionOfLast move replicas away from a cordoned node.
	DrainEviction       = "block-for-eviction"
	DrainEvictionOfLast = "block-for-eviction-if-contains-last-replica"
	// The default, block-if-contains-last-replica, and DrainEvictionOfLast ask the same of a drain:
	// a copy elsewhere.
)

// drained tells whether the disruption budget may go: the node is being emptied, or the autoscaler
// may remove it, and the drain policy is satisfied.
func (r *Reconciler) drained(ctx context.Context, im *v1beta2.InstanceManager, s seen) (bool, error) {
	if !s.cordoned() && !s.Autoscaler || s.holdsEngines(im) {
		return false, nil
	}
	var engines v1beta2.EngineList
	if err := r.client.List(ctx, &engines, client.InNamespace(im.Namespace)); err != nil {
		return false, fmt.Errorf("list engines: %w", err)
	}
	var replicas v1beta2.ReplicaList
	if err := r.client.List(ctx, &replicas, client.InNamespace(im.Namespace)); err != nil {
		return false, fmt.Errorf("list replicas: %w", err)
	}
	protected, err := ProtectedNodes(ctx, r.client, im.Namespace)
	if err != nil {
		return false, err
	}
	return mayDrain(im.Spec.NodeID, s.DrainPolicy, engines.Items, replicas.Items, protected), nil
}

// ProtectedNodes are the nodes whose instance manager has a disruption budget: a drain does not
// take their replicas away.
func ProtectedNodes(ctx context.Context, r client.Reader, namespace string) (map[string]bool, error) {
	var budgets policyv1.PodDisruptionBudgetList
	err := r.List(ctx, &budgets, client.InNamespace(namespace),
		client.MatchingLabels{naming.LabelComponent: naming.ComponentInstanceManager})
	if err != nil {
		return nil, fmt.Errorf("list disruption budgets: %w", err)
	}
	protected := map[string]bool{}
	for _, b := range budgets.Items {
		protected[b.Labels[naming.LabelOnNode]] = true
	}
	return protected, nil
}

// mayDrain applies the drain policy to one node. protected are the nodes whose instance manager has
// a budget.
func mayDrain(node, policy string, engines []v1beta2.Engine, replicas []v1beta2.Replica,
	protected map[string]bool) bool {
	for i := range engines {
		if engines[i].Spec.NodeID == node {
			return false
		}
	}
	if policy == drainAlways {
		return true
	}
	for i := range replicas {
		rep := &replicas[i]
		if rep.Spec.NodeID != node {
			continue
		}
		if policy == DrainEviction {
			return false
		}
		if policy == drainIfStopped && rep.Status.CurrentState == v1beta2.InstanceStateStopped {
			continue
		}
		if rep.Spec.HealthyAt == "" && rep.Spec.FailedAt == "" {
			continue // never started: holds nothing
		}
		if !CopyElsewhere(rep, replicas, protected) {
			return false
		}
	}
	return true
}

// CopyElsewhere tells whether the volume has a healthy replica on another node that a drain would
// not take away.
func CopyElsewhere(of *v1beta2.Replica, replicas []v1beta2.Replica, protected map[string]bool) bool {
	for i := range replicas {
		r := &replicas[i]
		if r.Spec.VolumeName == of.Spec.VolumeName && r.Spec.NodeID != of.Spec.NodeID && r.Spec.Active &&
			r.Spec.HealthyAt != "" && r.Spec.FailedAt == "" && protected[r.Spec.NodeID] {
			return true
		}
	}
	return false
}

// gatherSettings reads the settings decide needs.
func (r *Reconciler) gatherSettings(s *seen, v setting.Values) {
	s.Settings = SettingsFrom(v, r.cfg.ServiceAccount)
	s.DefaultImage = v.String(setting.DefaultInstanceManagerImage)
	s.DrainPolicy = v.String(setting.NodeDrainPolicy)
	s.Autoscaler = v.Bool(setting.KubernetesClusterAutoscalerEnabled)
}
