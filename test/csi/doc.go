// Package csi runs the CSI driver against standalone clusters: real managers, engines and replicas,
// the driver's real program, real block devices, file systems and mounts. It has the sanity suite
// of the CSI project, and scenarios beyond it: data that survives clones, snapshots, growth and
// moves, and a driver that is killed at each step.
package csi
