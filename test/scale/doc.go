// Package scale measures what volumes cost the control plane: how long it takes until many of them
// are created and attached, how much processor time and how many requests to the API server each
// needs, and how many requests are sent while nothing happens.
//
// Managers, API server and nodes are real (package testcluster). Instance managers are models: they
// answer at once, and no process is behind an engine or a replica, so that a machine with two
// processors can show hundreds of volumes, and what is measured is the control plane.
package scale
