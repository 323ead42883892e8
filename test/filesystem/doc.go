// Package filesystem puts ext4 and XFS on a volume's block device and uses them while replicas are
// killed and come back, snapshots are taken, or everything is killed. Programs on the mount see no
// error and lose nothing that they synced; what they read is what they wrote; the file system is
// found clean and the replicas identical in the end.
//
// The programs run as processes of their own: a page of a memory map that waits for the volume
// stops its process's garbage collector, and the test's process must go on meanwhile, since it is
// the volume's witness.
package filesystem
