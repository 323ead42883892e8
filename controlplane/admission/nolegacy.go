//go:build nolegacy

package admission

import (
	"context"

	"ankole.storage/api/longhorn/v1beta2"
)

// Without support for instance managers of types engine and replica nobody looks at the requests
// that nodes hold for them.

// LegacyCPUFacts is nothing.
type LegacyCPUFacts struct{}

func legacyCPURequests(*v1beta2.Node) []int { return nil }

func (world) legacyCPUFacts(context.Context, *NodeFacts) error { return nil }

func (NodeFacts) migrated(old, request int) bool { return false }

func checkLegacyCPURequests(old, n *v1beta2.Node, f NodeFacts) error { return nil }
