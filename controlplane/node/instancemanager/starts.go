package instancemanager

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// firstWait and mostWait bound the pause between one Pod and the next: short, because without
	// an instance manager the node's replicas are down, and growing, because a Pod that dies at
	// once would otherwise be made for ever.
	firstWait = time.Second
	mostWait  = 2 * time.Minute
	// settledAfter is how long a Pod must have run to count as a success.
	settledAfter = 5 * time.Minute
)

// starts counts the Pods made for each instance manager and derives the back-off. It lives in
// memory only: a new leader starts counting afresh, which costs a few Pods at most.
type starts struct {
	now func() time.Time

	mu   sync.Mutex
	seen map[client.ObjectKey]*start
}

type start struct {
	pod   types.UID
	made  time.Time
	count int // Pods in a row that did not settle
	// refused: the node had no room for the Pod; others is the number of other Pods of instance
	// managers on the node since.
	refused bool
	others  int
}

func newStarts(now func() time.Time) *starts {
	return &starts{now: now, seen: map[client.ObjectKey]*start{}}
}

// observe takes note of the present Pod (nil: none) and returns the time before which no new one
// should be made.
func (s *starts) observe(key client.ObjectKey, pod *corev1.Pod) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.seen[key]
	if st == nil {
		st = &start{}
		s.seen[key] = st
	}
	if pod != nil && pod.UID != st.pod {
		st.pod, st.made = pod.UID, s.now()
		st.count++
		st.refused = false
	}
	if pod != nil && podReady(pod) && s.now().Sub(st.made) > settledAfter {
		st.count = 0
	}
	if st.count == 0 {
		return time.Time{}
	}
	wait := mostWait
	if shift := st.count - 1; shift < 7 { // 1 s << 7 exceeds mostWait
		wait = firstWait << shift
	}
	return st.made.Add(wait)
}

// removed takes note that the Pod is removed on purpose: it has not failed, and the next one waits
// for nothing.
func (s *starts) removed(key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.seen[key]; st != nil {
		st.count = 0
	}
}

// room takes note of how many other Pods of instance managers the node has beside one that it had
// no room for. With one fewer there may be room: the next start waits no longer.
func (s *starts) room(key client.ObjectKey, others int) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.seen[key]
	if st == nil {
		return false
	}
	more = st.refused && others < st.others
	st.refused, st.others = true, others
	if more {
		st.count = 0
	}
	return more
}

func (s *starts) forget(key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, key)
}
