// Package environ reads the environments that processes were started with.
//
// The kernel takes the lock of a process's memory for that. A thread of the process may hold it
// while it waits for a block device, for as long as nobody serves the device; and whoever reads may
// be the one who has to start what serves it. So a reading that does not return is left alone.
package environ

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// proc is where the kernel shows processes.
const proc = "/proc"

const (
	// defaultWait is how long readings under way are waited for when none of them returns: a reading
	// takes microseconds, or as long as an execve may, and on a machine that is busy others return
	// meanwhile.
	defaultWait = execTime + time.Second
	// atOnce bounds the readings that are begun together.
	atOnce = 64
)

// Reader reads environments, for any number of goroutines. It remembers the processes whose reading
// has not returned while it was waited for: a thread waits there, and nobody waits for it again.
// The zero value is ready for use.
type Reader struct {
	// Root is where processes are shown, empty: /proc.
	Root string
	// Wait is how long readings are waited for when none returns, 0: as long as a process may take
	// to run another program, and a second.
	Wait time.Duration

	mu sync.Mutex
	// underWay are the readings, by process.
	underWay map[int]*readings
}

// readings of one process are under way.
type readings struct {
	n int
	// left: one of them has not returned while it was waited for.
	left bool
}

func (r *Reader) root() string {
	if r.Root == "" {
		return proc
	}
	return r.Root
}

// file is a file of a process.
func (r *Reader) file(pid int, name string) string {
	return filepath.Join(r.root(), strconv.Itoa(pid), name)
}

// Processes lists all processes but this one.
func (r *Reader) Processes() []int {
	entries, err := os.ReadDir(r.root())
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// reading is what one reading has found.
type reading struct {
	pid         int
	environment []byte
	err         error
}

// Each calls f with the environment of each process, in any order; that of a process in the middle
// of an execve when it has one again. It leaves out those of which nothing can be read, and those
// whose reading does not return.
func (r *Reader) Each(pids []int, f func(pid int, environment []byte)) {
	for some := range slices.Chunk(pids, atOnce) {
		r.each(some, f)
	}
}

func (r *Reader) each(pids []int, f func(pid int, environment []byte)) {
	wait := r.Wait
	if wait == 0 {
		wait = defaultWait
	}
	results := make(chan reading, len(pids)) // a late one keeps nobody
	left := map[int]bool{}
	for _, pid := range pids {
		if r.begin(pid) {
			left[pid] = true
			go func() {
				p, err := r.read(pid)
				r.end(pid)
				results <- reading{pid, p, err}
			}()
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for len(left) > 0 {
		select {
		case got := <-results:
			delete(left, got.pid)
			if got.err == nil { // else it has ended, or is not ours to look at
				f(got.pid, got.environment)
			}
		case <-timer.C:
			r.leave(left)
			return
		}
		timer.Reset(wait)
	}
}

// begin begins a reading; false: one of that process has not returned.
func (r *Reader) begin(pid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.underWay == nil {
		r.underWay = map[int]*readings{}
	}
	u := r.underWay[pid]
	if u == nil {
		u = &readings{}
		r.underWay[pid] = u
	}
	if u.left {
		return false
	}
	u.n++
	return true
}

func (r *Reader) end(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.underWay[pid]
	if u.n--; u.n == 0 {
		delete(r.underWay, pid)
	}
}

// leave waits no longer for those readings.
func (r *Reader) leave(pids map[int]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pid := range pids {
		if u := r.underWay[pid]; u != nil {
			u.left = true
		}
	}
}
