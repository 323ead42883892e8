package cluster

import "fmt"

// minimalAvailable replaces the default of 25 % for setting storage-minimal-available-percentage,
// which is meant for disks that hold nothing else. Here all nodes share the disk of somebody's
// machine, which is often fuller than that, and then no volume could be placed. A user's own choice
// stands: the values are written over the settings only when they change here.
const minimalAvailable = 5

// defaultSettings is the ConfigMap from which the manager of a standalone cluster takes its
// defaults.
func defaultSettings(namespace string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: ConfigMap
metadata:
  name: longhorn-default-setting
  namespace: %s
data:
  default-setting.yaml: |
    storage-minimal-available-percentage: %d
`, namespace, minimalAvailable)
}
