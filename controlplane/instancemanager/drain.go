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
	drainEviction  = "block-for-eviction"
	drainIfStopped = "allow-if-replica-is-stopped"
	// The two policies that end in -if-contains-last-replica ask the same here: a copy elsewhere.
)

// drained tells whether the disruption budget may go: the node is being emptied, or the autoscaler may remove it, and
// the drain policy is satisfied.
func (r *Reconciler) drained(ctx context.Context, im *v1beta2.InstanceManager, s seen) (bool, error) {
	if !s.cordoned() && !s.Autoscaler || len(im.Status.InstanceEngines) > 0 {
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
	var budgets policyv1.PodDisruptionBudgetList
	err := r.client.List(ctx, &budgets, client.InNamespace(im.Namespace),
		client.MatchingLabels{naming.LabelComponent: naming.ComponentInstanceManager})
	if err != nil {
		return false, fmt.Errorf("list disruption budgets: %w", err)
	}
	protected := map[string]bool{}
	for _, b := range budgets.Items {
		protected[b.Labels[naming.LabelOnNode]] = true
	}
	return mayDrain(im.Spec.NodeID, s.DrainPolicy, engines.Items, replicas.Items, protected), nil
}

// mayDrain applies the drain policy to one node. protected are the nodes whose instance manager has a budget.
func mayDrain(node, policy string, engines []v1beta2.Engine, replicas []v1beta2.Replica, protected map[string]bool) bool {
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
		if policy == drainEviction {
			return false
		}
		if policy == drainIfStopped && rep.Status.CurrentState == v1beta2.InstanceStateStopped {
			continue
		}
		if rep.Spec.HealthyAt == "" && rep.Spec.FailedAt == "" {
			continue // never started: holds nothing
		}
		if !copyElsewhere(rep, replicas, protected) {
			return false
		}
	}
	return true
}

// copyElsewhere tells whether the volume has a healthy replica on another node that a drain would not take away.
func copyElsewhere(of *v1beta2.Replica, replicas []v1beta2.Replica, protected map[string]bool) bool {
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
