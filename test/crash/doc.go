// Package crash kills the real processes of a volume, one or all at once, while it is written to,
// and looks at what is left: nothing flushed may be lost, and the replicas must be equal again. It
// needs no cluster; package rig runs the processes.
package crash
