// Package csi is the driver driver.longhorn.io of the Container Storage Interface: what Kubernetes
// calls to make volumes for claims and to bring them into Pods.
//
// # Who calls what
//
// One program on every node serves three services on one unix socket. The sidecars of Kubernetes
// (provisioner, attacher, resizer, snapshotter) call the controller service, the kubelet of the
// node calls the node service, both ask the identity service what there is.
//
//	claim ─> provisioner ── CreateVolume ──────────────┐
//	Pod scheduled ─> attacher ── ControllerPublish ──> │ controller ── REST /v1 ──> manager
//	snapshot, growth ─> … ─────────────────────────────┘
//	Pod starts ─> kubelet ── NodeStage, NodePublish ──> node ── mkfs, fsck, mount ──> /dev/longhorn/<volume>
//
// The controller service keeps nothing: it turns a call into wishes that the manager stores (a
// volume, an attachment ticket, a larger size, a snapshot object), and waits until they are
// fulfilled or the caller's time is up. The node service keeps nothing either: the table of mounts
// of the kernel is its state. It does not ask the manager for anything between two Pods, so that
// Pods start and stop on volumes that are attached while the control plane is down.
//
// # What can happen in between
//
// Callers repeat a call until it succeeds, give up without saying so, and call in any order.
// Therefore every call looks at what is there before each step and goes on from it; a second call
// about the same volume while one runs is answered ABORTED, and the death of this process at any
// step leaves nothing that the next call would not find. Formatting is the one step that cannot be
// undone: it is done only on a device that holds nothing, or a file system of which mkfs itself has
// left the mark that it was not completed.
//
// docs/guide/csi.md lists each call, its steps and what is refused with which code.
package csi
