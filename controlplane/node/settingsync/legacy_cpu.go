//go:build !nolegacy

package settingsync

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/setting"
)

// handOver moves the value of setting guaranteed-engine-cpu into the nodes, one after the other,
// and empties it then; due is false of any other setting, and when that is done. docs/guide/cpu.md
// has the table.
//
// Crash window: between two nodes, or before the setting is emptied, the value is still there and
// the nodes that have it already are passed over.
func handOver(s *v1beta2.Setting, nodes []v1beta2.Node) (d loop.Decision, due bool) {
	if s.Name != setting.GuaranteedEngineCPU || s.Value == "" {
		return loop.Decision{}, false
	}
	millis := setting.EngineCPUMillis(s.Value)
	for i := range nodes {
		n := nodes[i].DeepCopy()
		fields := []*int{&n.Spec.EngineManagerCPURequest, &n.Spec.ReplicaManagerCPURequest}
		if setting.EngineCPUChosen(s.Value) {
			fields = append(fields, &n.Spec.InstanceManagerCPURequest)
		}
		changed := false
		for _, f := range fields {
			if *f == 0 && millis > 0 {
				*f, changed = millis, true
			}
		}
		if changed {
			return loop.Decision{Do: loop.Update{Object: n}}, true
		}
	}
	return loop.Decision{Do: loop.Update{Object: marked(s, "")}}, true
}

// nodesOf are the nodes that a value of guaranteed-engine-cpu goes to.
func (r *Reconciler) nodesOf(ctx context.Context, s *v1beta2.Setting) ([]v1beta2.Node, error) {
	if s.Name != setting.GuaranteedEngineCPU || s.Value == "" {
		return nil, nil
	}
	var list v1beta2.NodeList
	if err := r.client.List(ctx, &list, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	// Sorted in a copy: the list is the cache's.
	nodes := slices.Clone(list.Items)
	slices.SortFunc(nodes, func(a, b v1beta2.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, nil
}
