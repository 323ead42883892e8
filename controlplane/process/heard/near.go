package heard

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
)

// Near reads the instance managers that may matter to an object whose process has that name: those
// of its node, those that are named, and those that list such a process. What was heard stands in
// them in place of what their status says; silent names those from which nothing was heard. It
// costs the same however many there are.
func (l *Lists) Near(ctx context.Context, r client.Reader, namespace, process, node string, named ...string) (
	managers []v1beta2.InstanceManager, silent map[string]bool, err error) {
	// Who begins to list the process from now on wakes the object.
	named = append(l.With(process), named...)
	if node != "" {
		var there v1beta2.InstanceManagerList
		if err := r.List(ctx, &there, client.InNamespace(namespace), index.OnNode(node),
			client.UnsafeDisableDeepCopy); err != nil {
			return nil, nil, fmt.Errorf("list instance managers of node %s: %w", node, err)
		}
		managers = there.Items
	}
	known := map[string]bool{"": true}
	for i := range managers {
		known[managers[i].Name] = true
	}
	for _, name := range named {
		if known[name] {
			continue
		}
		known[name] = true
		var im v1beta2.InstanceManager
		switch err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &im, client.UnsafeDisableDeepCopy); {
		case err == nil:
			managers = append(managers, im)
		case client.IgnoreNotFound(err) != nil:
			return nil, nil, fmt.Errorf("get instance manager %s: %w", name, err)
		}
	}
	return managers, l.In(managers), nil
}

// In puts what was heard into instance managers, and names those from which nothing was.
func (l *Lists) In(managers []v1beta2.InstanceManager) (silent map[string]bool) {
	silent = map[string]bool{}
	for i := range managers {
		st := &managers[i].Status
		st.Instances, st.InstanceEngines, st.InstanceReplicas = nil, nil, nil
		if p, _ := l.Of(managers[i].Name); p != nil {
			st.InstanceEngines, st.InstanceReplicas = p.Engines, p.Replicas
		} else {
			silent[managers[i].Name] = true
		}
	}
	return silent
}
