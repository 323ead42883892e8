package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// defaultSettings are the settings of a standalone cluster that differ from the defaults. A user's
// own choice stands: the values are written over the settings only when they change here.
//
// The default of 25 % for storage-minimal-available-percentage is meant for disks that hold nothing
// else. Here all nodes share the disk of somebody's machine, which is often fuller than that, and
// then no volume could be placed.
var defaultSettings = map[string]string{"storage-minimal-available-percentage": "5"}

// anonymousAccess of a standalone cluster: what callers without a token may do. Loopback is open to
// every user of the machine, who through a cluster could do what its owner can.
const anonymousAccess = "none"

// defaults are the settings for ConfigMap longhorn-default-setting, but for anonymousAccess. Those
// of a cluster that is there stay as it was made with, or go, where anonymous access becomes
// another one: managers of before noted which version of the ConfigMap they had taken over, and
// not which values, so another version would take the place of what a user has set.
func (c *Cluster) defaults(ctx context.Context, namespace string) (map[string]string, error) {
	const name, file, anonymous = "longhorn-default-setting", "default-setting.yaml", "api-anonymous-access"
	m, err := c.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return defaultSettings, nil
	}
	var there map[string]any
	if err == nil {
		err = yaml.Unmarshal([]byte(m.Data[file]), &there)
	}
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", name, err)
	}
	if there[anonymous] != anonymousAccess {
		return nil, nil
	}
	delete(there, anonymous)
	settings := map[string]string{}
	for name, value := range there {
		settings[name] = fmt.Sprint(value)
	}
	return settings, nil
}
