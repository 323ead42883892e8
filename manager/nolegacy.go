//go:build nolegacy

package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// errLegacy: this program was built without support for instance managers of types engine and
// replica, and there are some with processes.
var errLegacy = errors.New("instance managers of types engine and replica are still in use, and this version does not " +
	"know them; go back to the version before, and detach the volumes of these processes or upgrade their engines and " +
	"detach them then")

// refuseLegacy refuses to start while an instance manager of type engine or replica says that
// processes run in it: nobody would look after them. It is asked before anything is written.
func refuseLegacy(ctx context.Context, r client.Reader, namespace string) error {
	var list v1beta2.InstanceManagerList
	err := persist(ctx, "look for older instance managers", func(ctx context.Context) error {
		err := r.List(ctx, &list, client.InNamespace(namespace))
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return nil // a cluster without our kinds
		}
		return err
	})
	if err != nil {
		return err
	}
	var inUse []string
	for i := range list.Items {
		im := &list.Items[i]
		if im.Spec.Type != v1beta2.InstanceManagerTypeEngine && im.Spec.Type != v1beta2.InstanceManagerTypeReplica {
			continue
		}
		var processes []string
		for name, p := range im.Status.Instances {
			if p.Status.State != v1beta2.InstanceStateStopped && p.Status.State != v1beta2.InstanceStateError {
				processes = append(processes, name)
			}
		}
		if len(processes) > 0 {
			slices.Sort(processes)
			inUse = append(inUse, fmt.Sprintf("%s on %s (%s)", im.Name, im.Spec.NodeID, strings.Join(processes, ", ")))
		}
	}
	if len(inUse) == 0 {
		return nil
	}
	slices.Sort(inUse)
	return fmt.Errorf("%w: %s", errLegacy, strings.Join(inUse, "; "))
}
