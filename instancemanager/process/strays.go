package process

import (
	"bytes"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"ankole.storage/host/environ"
)

// strayVariable marks an instance and whatever it starts: "<owner>/<UUID>". The process group of an
// instance dies with it, but a child may have left the group; the mark is inherited all the same.
const strayVariable = "ANKOLE_INSTANCE"

const (
	// strayPasses bounds the search for processes that fork while they are being killed.
	strayPasses = 20
	// endedBuffer holds ends of instances that come while others are looked after; a full one makes
	// them wait.
	endedBuffer = 64
)

// strays ends what instances have left behind. One goroutine looks through all processes of the
// machine, for all instances at once that have ended meanwhile.
type strays struct {
	owner string
	log   *slog.Logger
	// environ leaves out processes whose environment cannot be read at the moment, since they wait for
	// a volume whose engine is to be started here: they are taken for none of ours.
	environ *environ.Reader
	ended   chan string // UUIDs
	done    chan struct{}
	// unreaped are killed strays that may be children of this process, which in a Pod is the one
	// that inherits orphans.
	unreaped []int
}

// newStrays ends what an earlier instance manager of the same owner left, and then waits for ends.
// Without an owner nothing is looked for. proc is where processes are shown, empty: /proc.
func newStrays(owner, proc string, log *slog.Logger) *strays {
	s := &strays{owner: owner, log: log, environ: &environ.Reader{Root: proc},
		ended: make(chan string, endedBuffer), done: make(chan struct{})}
	if owner != "" {
		s.kill(s.mark(""))
	}
	go s.run()
	return s
}

// mark is the beginning of the variable of an instance; that of all with an empty UUID.
func (s *strays) mark(uuid string) []byte {
	return fmt.Appendf(nil, "%s=%s/%s", strayVariable, s.owner, uuid)
}

// look has the strays of an instance ended, which has been reaped.
func (s *strays) look(uuid string) {
	if s.owner != "" {
		s.ended <- uuid
	}
}

// close waits until everything is looked after. Nobody may call look any more.
func (s *strays) close() {
	close(s.ended)
	<-s.done
}

func (s *strays) run() {
	defer close(s.done)
	for uuid := range s.ended {
		marks := [][]byte{s.mark(uuid)}
		for more := true; more; {
			select {
			case next, ok := <-s.ended:
				if more = ok; ok {
					marks = append(marks, s.mark(next))
				}
			default:
				more = false
			}
		}
		s.kill(marks...)
	}
}

// kill ends all processes with one of the marks, until there is none.
func (s *strays) kill(marks ...[]byte) {
	for range strayPasses {
		var marked []int
		s.environ.Each(s.environ.Processes(), func(pid int, environment []byte) {
			if hasMark(environment, marks) {
				marked = append(marked, pid)
			}
		})
		found := false
		for _, pid := range marked {
			found = s.killIf(pid, marks) || found
		}
		s.reap()
		if !found {
			return
		}
	}
}

// killIf kills a process that has one of the marks. The descriptor makes sure that it is the one
// whose mark was read.
func (s *strays) killIf(pid int, marks [][]byte) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false // it has ended
	}
	defer unix.Close(fd)
	killed := false
	s.environ.Each([]int{pid}, func(_ int, environment []byte) {
		killed = hasMark(environment, marks) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
	})
	if killed {
		s.log.Warn("killed a process that an instance had left behind", "pid", pid)
		s.unreaped = append(s.unreaped, pid)
	}
	return killed
}

// hasMark looks at the environment that a process was started with. One that has ended has none.
func hasMark(environment []byte, marks [][]byte) bool {
	for variable := range bytes.SplitSeq(environment, []byte{0}) {
		for _, mark := range marks {
			if bytes.HasPrefix(variable, mark) {
				return true
			}
		}
	}
	return false
}

// reap collects killed strays that have ended. Those that are no children of this process are
// somebody else's to collect.
func (s *strays) reap() {
	var left []int
	for _, pid := range s.unreaped {
		if got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err == nil && got == 0 {
			left = append(left, pid)
		}
	}
	s.unreaped = left
}
