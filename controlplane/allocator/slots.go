package allocator

import (
	"slices"
	"time"
)

// turnLimit is how long a slot is kept for a volume whose turn it is. A reconciliation that works
// takes milliseconds; the limit only keeps one that fails from holding up the others.
const turnLimit = 10 * time.Second

// slots are the slots of each node and the volumes that wait for one, in order.
type slots struct {
	limit  int
	held   map[string]int
	queues map[string][]*waiter
}

// waiter is a volume in the queue of a node.
type waiter struct {
	volume string
	// turn is when the volume was told that it is its turn; zero before that.
	turn time.Time
}

func newSlots() *slots {
	return &slots{held: map[string]int{}, queues: map[string][]*waiter{}}
}

func (s *slots) free(node string) int { return s.limit - s.held[node] }

// may tells whether a volume may take a slot of the node: fewer volumes wait before it than slots
// are free.
func (s *slots) may(volume, node string) bool {
	free, queue := s.free(node), s.queues[node]
	if len(queue) < free {
		return true
	}
	return slices.ContainsFunc(queue[:max(0, free)], func(w *waiter) bool { return w.volume == volume })
}

// add changes the number of slots that are held on a node.
func (s *slots) add(node string, n int) {
	if s.held[node] += n; s.held[node] == 0 {
		delete(s.held, node)
	}
}

// enter puts a volume at the end of a node's queue. turn is when it was told that a slot is free,
// zero if it was not.
func (s *slots) enter(volume, node string, turn time.Time) {
	if s.waiter(volume, node) == nil {
		s.queues[node] = append(s.queues[node], &waiter{volume: volume, turn: turn})
	}
}

// restore puts a volume that took its turn in vain at the head of a node's queue.
func (s *slots) restore(volume, node string, turn time.Time) {
	s.leave(volume, node)
	s.queues[node] = slices.Insert(s.queues[node], 0, &waiter{volume: volume, turn: turn})
}

// leave takes a volume out of a node's queue.
func (s *slots) leave(volume, node string) {
	queue := slices.DeleteFunc(s.queues[node], func(w *waiter) bool { return w.volume == volume })
	if s.queues[node] = queue; len(queue) == 0 {
		delete(s.queues, node)
	}
}

func (s *slots) waiter(volume, node string) *waiter {
	for _, w := range s.queues[node] {
		if w.volume == volume {
			return w
		}
	}
	return nil
}

// turns gives the free slots of a node to the first volumes in its queue, and names those that were
// not told before. A volume that was told turnLimit ago goes to the end if others wait.
func (s *slots) turns(now time.Time, node string) (tell []string) {
	queue, free := s.queues[node], max(0, s.free(node))
	if free < len(queue) {
		var late []*waiter
		queue = slices.DeleteFunc(queue, func(w *waiter) bool {
			overdue := !w.turn.IsZero() && now.Sub(w.turn) >= turnLimit
			if overdue {
				late = append(late, w)
			}
			return overdue
		})
		queue = append(queue, late...)
		s.queues[node] = queue
		for _, w := range late {
			w.turn = time.Time{}
		}
	}
	for i, w := range queue {
		switch {
		case i >= free:
			w.turn = time.Time{} // a slot went to somebody else, or the limit was lowered
		case w.turn.IsZero():
			w.turn = now
			tell = append(tell, w.volume)
		}
	}
	return tell
}
