package sim

import (
	"errors"
	"runtime"
	"sync"
	"syscall"

	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
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

// sharedMemory is a window. Whoever is killed has it for ever: what its disk completes later may
// still be written there.
type sharedMemory struct {
	mem     []byte
	holders int
	// end gives the memory back when the world has gone.
	end runtime.Cleanup
}

// idleMemory are mappings that nobody uses: to make one takes longer than to make it zero.
var idleMemory struct {
	sync.Mutex
	free [][]byte
}

func takeMemory() []byte {
	idleMemory.Lock()
	defer idleMemory.Unlock()
	if n := len(idleMemory.free); n > 0 {
		m := idleMemory.free[n-1]
		idleMemory.free = idleMemory.free[:n-1]
		return m
	}
	m, err := syscall.Mmap(-1, 0, wire.WindowSize, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		panic(err)
	}
	return m
}

func putMemory(m []byte) {
	if err := syscall.Madvise(m, syscall.MADV_DONTNEED); err != nil {
		panic(err)
	}
	idleMemory.Lock()
	defer idleMemory.Unlock()
	idleMemory.free = append(idleMemory.free, m)
}

// localTo is the address of the replica on a node as engines there are told, "" if there is none.
func (v *Volume) localTo(node *Node) string {
	if !v.Shares {
		return ""
	}
	return node.Name // replicas are called like their nodes
}

// NewWindow is engine.Config.NewWindow.
func (v *Volume) NewWindow() (*engine.Window, error) {
	n := len(v.W.windows)
	m := &sharedMemory{mem: takeMemory(), holders: 1}
	m.end = runtime.AddCleanup(m, putMemory, m.mem)
	v.W.windows = append(v.W.windows, m)
	return &engine.Window{Mem: m.mem, Offer: wire.WindowOffer{PID: 1, FD: n}, Free: func() { v.freeWindow(m.mem) }}, nil
}

// openWindow is replica.Config.OpenWindow.
func (v *Volume) openWindow(o *wire.WindowOffer) ([]byte, error) {
	if o.FD < 0 || o.FD >= len(v.W.windows) || v.W.windows[o.FD].holders == 0 {
		return nil, errors.New("no such window")
	}
	m := v.W.windows[o.FD]
	m.holders++
	v.Shared++
	return m.mem, nil
}

func (v *Volume) freeWindow(mem []byte) {
	for _, m := range v.W.windows {
		if m.holders > 0 && &m.mem[0] == &mem[0] {
			if m.holders--; m.holders == 0 {
				m.end.Stop()
				putMemory(m.mem)
			}
			return
		}
	}
	panic("sim: memory is given back that nobody has")
}

// Held is how many windows somebody has.
func (v *Volume) Held() (n int) {
	for _, m := range v.W.windows {
		if m.holders > 0 {
			n++
		}
	}
	return n
}
