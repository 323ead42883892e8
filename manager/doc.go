// Package manager wires the manager process together.
//
// Every node runs one manager Pod. Each of them is a node agent (the disks of its own node), an
// admission webhook, a REST server and the witness relay of its node's instance manager. One of
// them, elected by a Lease, is the leader: it alone runs the controllers and the scheduler.
// Followers cache the objects of their own node only.
package manager
