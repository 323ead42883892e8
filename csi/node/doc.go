// Package node is the node service of the CSI driver: what the kubelet calls to bring a volume that
// is attached to its node into Pods, encrypted ones too, and to take it out again.
//
// The service keeps nothing: the table of mounts of the kernel, and its mapper devices, are its
// state. It does not ask the manager for anything between two Pods, so that Pods start and stop on
// volumes that are attached while the control plane is down. What may wait in the kernel is done by
// a process of its own (package helper), or while the call that wants it may end (Server.work).
//
// Every call looks at what is there before each step, and the death of this process at any step
// leaves nothing that the next call would not find. Formatting is the one step that cannot be
// undone: it is done only on a device that holds nothing, or a file system of which mkfs itself has
// left the mark that it was not completed.
package node
