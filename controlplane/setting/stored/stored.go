// Package stored reads the values of all settings from their objects.
package stored

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// Read returns the stored values of all settings. Given a cached reader it is cheap enough for
// every reconciliation.
func Read(ctx context.Context, r client.Reader, namespace string) (setting.Values, error) {
	var list v1beta2.SettingList
	// The strings are copied out of the shared cache objects at once, so these need no deep copy.
	if err := r.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	values := make(setting.Values, len(list.Items))
	for i := range list.Items {
		values[list.Items[i].Name] = list.Items[i].Value
	}
	return values, nil
}
