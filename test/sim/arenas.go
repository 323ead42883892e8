package sim

import (
	"sync"

	"ankole.storage/dataplane/loop"
)

// arenas are those of simulations that have ended, by their budget in bytes: memory that is mapped
// anew costs more than to make what was used zero.
type arenas struct {
	mu   sync.Mutex
	free map[int][]*loop.Arena
}

// mostIdle bounds how many arenas of a budget are kept.
const mostIdle = 32

var idleArenas = arenas{free: map[int][]*loop.Arena{}}

// take returns an arena without any buffer in use.
func (s *arenas) take(budget int) *loop.Arena {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.free[budget]
	if len(free) == 0 {
		return loop.NewArena(budget)
	}
	a := free[len(free)-1]
	s.free[budget] = free[:len(free)-1]
	return a
}

// put takes an arena that nobody uses any more.
func (s *arenas) put(a *loop.Arena) {
	a.Reset()
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := a.Budget(); len(s.free[b]) < mostIdle {
		s.free[b] = append(s.free[b], a)
		return
	}
	_ = a.Close() // nobody has anything in it
}
