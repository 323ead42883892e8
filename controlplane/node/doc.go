// Package node looks after storage nodes and their disks.
//
// Two writers share a Node object, each with fields of its own:
//
//   - The agent (agent.go), on every node, reports what only that node can know: what its disks are
//     (UUID, file system, size, free space), whether they are usable, and what the host lacks. It
//     also makes the Node object and its default disk when the node joins.
//   - The leader (this file and decide.go) writes what follows from other objects: whether node and
//     manager Pod are up, zone and region, which replicas are on which disk, and whether a disk can
//     take more. It makes the instance manager of the node.
//
// The one field both need is a disk's condition Ready: the agent writes it while the node's own
// Ready condition is True, the leader while it is not, since then the agent may be down. Which
// of the two writes it is thus in the object itself, and every write carries the version it is
// based on.
//
// docs/design/controlplane.md has the table of fields.
package node
