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
// Package request reads what a call asks for, package controller has the manager store and fulfil
// it, package node mounts. This package is the process: its configuration, the identity service,
// the socket, and the registration with the kubelet.
//
// # What can happen in between
//
// Callers repeat a call until it succeeds, give up without saying so, and call in any order.
// Therefore every call looks at what is there before each step and goes on from it; a second call
// about the same volume while one runs is answered ABORTED, and the death of this process at any
// step leaves nothing that the next call would not find.
//
// docs/guide/csi.md lists each call, its steps and what is refused with which code.
package csi
