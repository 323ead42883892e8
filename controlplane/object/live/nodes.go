package live

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// NodesOf reads the nodes that replicas are on; those without an object are left out.
func NodesOf(ctx context.Context, r client.Reader, namespace string,
	replicas []v1beta2.Replica) ([]v1beta2.Node, error) {
	var names []string
	for i := range replicas {
		if n := replicas[i].Spec.NodeID; n != "" {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	var out []v1beta2.Node
	for _, name := range slices.Compact(names) {
		var n v1beta2.Node
		err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &n)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get node %s: %w", name, err)
		}
		if err == nil {
			out = append(out, n)
		}
	}
	return out, nil
}
