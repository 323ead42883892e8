package witness

import (
	"hash/fnv"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/condition"
	"ankole.storage/controlplane/naming"
)

// others is how many managers besides the one of its own node an instance manager is served by. The
// manager of the own node is away at each of its upgrades; two others are away at the same time
// only by a further failure. More would cost streams: each manager keeps one plus this many.
const others = 2

// ring is the nodes with a ready manager. They stand in for each other in the order of a hash of
// their names, so that nodes of one rack, whose names are often alike, are not each other's
// substitutes, and so that each manager has the same number of streams.
type ring []place

type place struct {
	hash uint64
	node string
}

func placeOf(node string) place {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node)) // never fails
	return place{h.Sum64(), node}
}

func (p place) before(o place) bool { return p.hash < o.hash || p.hash == o.hash && p.node < o.node }

func newRing(nodes []string) ring {
	r := make(ring, 0, len(nodes))
	for _, n := range nodes {
		r = append(r, placeOf(n))
	}
	slices.SortFunc(r, func(a, b place) int {
		switch {
		case a.before(b):
			return -1
		case b.before(a):
			return 1
		}
		return 0
	})
	return slices.Compact(r)
}

// serves says whether the manager on node me answers the questions of an instance manager on
// another node, or on its own.
func (r ring) serves(me, node string) bool {
	if me == node {
		return true
	}
	own := placeOf(node)
	next := sort.Search(len(r), func(i int) bool { return own.before(r[i]) })
	for i, found := 0, 0; i < len(r) && found < others; i++ {
		p := r[(next+i)%len(r)]
		if p.node == me {
			return true
		}
		if p.node != node {
			found++
		}
	}
	return false
}

// served are the Pods of instance managers that the manager on node me answers, among all Pods of
// managers and instance managers.
func served(me string, pods []corev1.Pod) map[client.ObjectKey]*corev1.Pod {
	var managers []string
	for i := range pods {
		if p := &pods[i]; p.Labels[naming.LabelComponent] == naming.ComponentManager && condition.PodReady(p) {
			managers = append(managers, p.Spec.NodeName)
		}
	}
	r, out := newRing(managers), map[client.ObjectKey]*corev1.Pod{}
	for i := range pods {
		p := &pods[i]
		if p.Labels[naming.LabelComponent] == naming.ComponentInstanceManager && p.Status.Phase == corev1.PodRunning &&
			p.Status.PodIP != "" && r.serves(me, p.Spec.NodeName) {
			out[client.ObjectKeyFromObject(p)] = p
		}
	}
	return out
}
