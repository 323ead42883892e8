// Package allocator owns what is limited per node: slots for rebuilds, room on disks, and the
// disruption budgets of instance managers. Whoever starts a rebuild, places a replica or releases a
// budget asks it; nobody counts for himself.
//
// It counts as the cache of a Kubernetes scheduler does: what the leader's cache shows, and what
// was ordered and is not shown yet, which it assumes. docs/design/allocator.md has the states, the
// invariants and the reason why a new leader may start without the assumptions of the former one.
package allocator
