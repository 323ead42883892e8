//go:build !nolegacy

package engine

import (
	"fmt"

	"ankole.storage/api/longhorn/v1beta2"
)

// cannotHandOver says why an engine in this instance manager cannot give its volume to another
// process while it serves: one from before the proxy ends the old process when the new one runs.
func cannotHandOver(im *v1beta2.InstanceManager) error {
	if im.Status.ProxyAPIVersion > 0 {
		return nil
	}
	return fmt.Errorf("instance manager %s is of a version that cannot replace an engine while its volume is attached: detach the "+
		"volume to upgrade it", im.Name)
}
