// Package controller is the controller service of the CSI driver: what the sidecars of Kubernetes
// call to make, publish, grow and delete volumes, and snapshots of them.
//
// The service keeps nothing: it turns a call into wishes that the manager stores (a volume, an
// attachment ticket, a larger size, a snapshot object), and waits until they are fulfilled or the
// caller's time is up. Callers repeat a call until it succeeds, give up without saying so, and call
// in any order, through several processes: every call looks at what is there and goes on from it.
package controller
