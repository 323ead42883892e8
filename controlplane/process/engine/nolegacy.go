//go:build nolegacy

package engine

import "ankole.storage/api/longhorn/v1beta2"

// cannotHandOver knows no instance manager whose engines cannot hand over.
func cannotHandOver(*v1beta2.InstanceManager) error { return nil }
