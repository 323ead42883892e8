// Package loop is the one reconcile loop of the control plane.
//
// A controller looks after one kind of object and repeats one step:
//
//	gather   read everything the decision needs (cache, API server, data plane); the only place with input
//	decide   a pure function of (now, object, gathered): edits the object's status and names at most one change
//	apply    write the status if it differs; otherwise carry out the one change. One outside the API
//	         server is an order that decide names as plain data, and that Carry carries out
//	requeue  look again, until a step finds nothing to do
//
// A process may die between any two steps, so nothing may live only in memory: whatever the next
// step needs to know is in an object or can be gathered again. Because each step makes one change
// and starts over, there is one crash window per step, and decide always judges a world in which
// every earlier change has happened.
//
// Order matters: a status that differs is written before the change is carried out. Use that to
// record an intention before acting on it. Decide must settle: with the status it asked for and the
// change it named both in effect, it must ask for nothing more.
//
// # Reading one's own writes
//
// Gather usually reads a cache, and a cache lags behind. After a write the loop remembers which
// resource version it produced and does not gather again for that object until the cache has caught
// up (at most catchUpLimit). So decide may create objects with random names and count them: it
// never sees a world older than its own last write.
//
// # Example
//
//	type seen struct{ Pod *corev1.Pod }
//
//	func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
//		return loop.Setup(mgr, loop.Controller[*v1beta2.InstanceManager, seen]{
//			Name:   "longhorn-instance-manager-controller", // also the source component of its events
//			New:    func() *v1beta2.InstanceManager { return &v1beta2.InstanceManager{} },
//			Gather: r.gather, // func(ctx, *v1beta2.InstanceManager) (seen, error)
//			Decide: decide,   // func(now, *v1beta2.InstanceManager, seen) loop.Decision
//			Conditions: func(im *v1beta2.InstanceManager) []loop.Condition { … },
//			Watches: []loop.Watch{
//				loop.Watching(&corev1.Pod{}, func(p *corev1.Pod) []string { return []string{p.Name} }),
//			},
//		})
//	}
//
//	func decide(now time.Time, im *v1beta2.InstanceManager, s seen) loop.Decision {
//		if s.Pod == nil {
//			im.Status.CurrentState = stopped // status: edited in place, the loop compares and writes
//			return loop.Decision{Do: loop.Create{Object: podFor(im)}}
//		}
//		im.Status.CurrentState = stateOf(s.Pod)
//		return loop.Decision{} // settled; the next event wakes us up
//	}
//
// Decide gets its own copy of the object and may edit nothing of it but the status. To change
// metadata or spec (a finalizer, a desired state) it returns Update with a deep copy. Gathered
// objects belong to the cache: never edit them, copy them first.
//
// What is gathered is plain data too: a function, a lock or a client in it is refused
// (NewReconciler).
//
// A test of decide needs no cluster: build the object and the gathered struct, call it, look at the
// status and at Decision.Do (String is meant for comparison).
package loop
