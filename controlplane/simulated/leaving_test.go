package simulated_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// TestKubeletIsLate: the Pod of an instance manager is deleted, beside the one of the next image or
// with none beside it, and the kubelet comes to it later. Until then the engine there serves and is
// nobody's concern; then another one follows at once.
func TestKubeletIsLate(t *testing.T) {
	for _, next := range []string{"im:1", "im:2"} {
		for _, local := range []bool{false, true} {
			story(t, 3, func(w *world) {
				v := w.volumeOfTwo("")
				at := w.without(v.name)[0]
				if local {
					at = w.host(w.replicasOf(v.name)[0].Spec.NodeID)
				}
				w.attach(v, at.name)
				w.run(time.Minute)
				w.setting(setting.DefaultInstanceManagerImage, next)
				w.run(time.Minute)
				e := w.processOf(v.name + "-e-0")
				at.kubeletLate, at.endLate = w.between(10*time.Second, time.Minute), 20*time.Second
				deleted := time.Now()
				_ = w.store.delete(get[*corev1.Pod](w, e.pod.name), client.DeleteOptions{}) // it is there
				for e.alive() {
					st := get[*v1beta2.Engine](w, e.name).Status
					if st.CurrentState != v1beta2.InstanceStateRunning || len(all[*v1beta2.Orphan](w)) > 0 {
						w.failf("the engine is %s, and its kubelet has not come to it", st.CurrentState)
					}
					w.run(100 * time.Millisecond)
				}
				if time.Since(deleted) < at.kubeletLate {
					w.failf("the engine ended before its kubelet came to it")
				}
				at.kubeletLate = 0
				ended, within := time.Now(), time.Minute
				if next != "im:1" && !local {
					within = 5 * time.Second // a place is there, and nothing to wait for, whatever still ends in the other one
				}
				for !w.runsIn(at, e.name) {
					w.run(100 * time.Millisecond)
					if time.Since(ended) > within {
						w.failf("no engine follows")
					}
				}
			})
		}
	}
}

// runsIn says whether a process of that name runs on a machine, in whichever instance manager.
func (w *world) runsIn(h *host, name string) bool {
	return slices.ContainsFunc(w.podsOn(h), func(p *pod) bool {
		r := p.processes[name]
		return r != nil && r.alive()
	})
}
