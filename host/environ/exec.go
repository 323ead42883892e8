package environ

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// execTime bounds the wait for a process that is about to run another program, and execPoll is how
// often it is looked at: an execve takes as long as the disk with the program does.
const (
	execTime = 2 * time.Second
	execPoll = time.Millisecond
)

// read returns the environment of a process. One in the middle of an execve has none: the kernel
// has taken the memory of the old program away and has not written the new one's environment yet.
// That is waited for, but for execTime at most.
func (r *Reader) read(pid int) ([]byte, error) {
	tick := time.NewTicker(execPoll)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		text, err := whole(r.file(pid, "environ"))
		if err != nil || len(text) > 0 || !r.executing(pid) || time.Since(began) >= execTime {
			return text, err
		}
	}
}

// atFirst is how many bytes of an environment are asked for at first; most have fewer.
const atFirst = 16 << 10

// whole reads a file by one call. Of a process that runs another program between two calls the
// second one would find nothing more, as at the end.
func whole(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for p := make([]byte, atFirst); ; p = make([]byte, 2*len(p)) {
		n, err := f.Read(p)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if err != nil || n < len(p) {
			return p[:n], err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
	}
}

// Fields of /proc/<pid>/stat behind the name, counted from its state, and a flag in them (proc(5),
// include/linux/sched.h).
const (
	statState    = 0
	statFlags    = 6
	statCode     = 23
	statEnvStart = 47
	statEnvEnd   = 48
	exiting      = 0x00000004
	kernelThread = 0x00200000
)

// executing says whether a process whose environment was empty was in the middle of an execve. It
// was not if it has ended, is the kernel's, or runs its program without an environment: the place
// of that is noted with no length at first, before that of the code.
func (r *Reader) executing(pid int) bool {
	stat, err := os.ReadFile(r.file(pid, "stat"))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) <= statEnvEnd {
		return false
	}
	flags, err := strconv.ParseUint(fields[statFlags], 10, 64)
	ended := fields[statState] == "Z" || fields[statState] == "X"
	empty := fields[statCode] != "0" && fields[statEnvEnd] != "0" && fields[statEnvEnd] == fields[statEnvStart]
	return err == nil && !ended && !empty && flags&(kernelThread|exiting) == 0
}
