// Package engineimage brings the binary of an engine image to every node and counts who uses it.
//
// An EngineImage names a container image that holds an engine binary. A DaemonSet runs it on every
// node; the container copies its binary into the node's folder of engine binaries, from where
// instance managers start processes, and then waits, so that its readiness tells where the image is
// deployed. The image is deployed when every ready node that the DaemonSet targets has it, and the
// binary has told its interface versions.
//
// Versions are asked for by running the binary, which the leader does on its own node: a binary is
// installed on every node, so the leader's is as good as any, and it works for images of every
// origin.
//
// Images nobody uses are removed after an hour, except the default one. docs/design/controlplane.md
// has the decision table.
package engineimage
