package manager

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

// Reconciler looks after one kind. Every package of a kind has
//
//	func New(…) *Reconciler
//	func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error
//
// where SetupWithManager calls loop.Setup. The reconcilers run on the leader only; mgr's client reads a cache of all
// objects in the manager's namespace and writes to the API server, its GetAPIReader reads live.
type Reconciler interface {
	SetupWithManager(mgr ctrl.Manager) error
}

// reconcilers lists everybody's reconcilers, in the order they are set up. A new kind is added here and nowhere else.
func reconcilers(cfg Config) []Reconciler {
	return []Reconciler{}
}
