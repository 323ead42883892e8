//go:build nolegacy

package settingsync

import (
	"context"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// handOver: setting guaranteed-engine-cpu does not exist any more.
func handOver(*v1beta2.Setting, []v1beta2.Node) (d loop.Decision, due bool) {
	return loop.Decision{}, false
}

func (*Reconciler) nodesOf(context.Context, *v1beta2.Setting) ([]v1beta2.Node, error) {
	return nil, nil
}
