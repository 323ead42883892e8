package worker

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// Pieces is how many pieces of a volume are under way.
	Pieces = 8
	// PieceBytes is the most that one of them has.
	PieceBytes = 1 << 20
	// memoryBytes is the size of the memory that worker and parent share.
	memoryBytes = Pieces * PieceBytes
)

// Memory is shared by a worker and its parent: a place of PieceBytes for each piece under way. The
// content of a volume goes through it and not through their connection, which would copy it several
// times. Whoever asks for a piece has its place until that is answered.
type Memory []byte

// newMemory makes it, and the file that the worker maps. The caller closes both.
func newMemory() (Memory, *os.File, error) {
	fd, err := unix.MemfdCreate("ankole-backup", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), "memory of a backup")
	if err = f.Truncate(memoryBytes); err == nil {
		// With another size an access to it would end the process.
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	var m Memory
	if err == nil {
		m, err = mapMemory(f)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return m, f, nil
}

func mapMemory(f *os.File) (Memory, error) {
	return unix.Mmap(int(f.Fd()), 0, memoryBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func (m Memory) unmap() { _ = unix.Munmap(m) } // it was mapped

// Place returns the first n bytes of a place.
func (m Memory) Place(place int, n int64) ([]byte, error) {
	if place < 0 || place >= Pieces || n < 0 || n > PieceBytes {
		return nil, fmt.Errorf("a piece of %d bytes at place %d", n, place)
	}
	return m[place*PieceBytes:][:n:n], nil
}

// Descriptors of a worker process.
const (
	// connection is its end of the pair of sockets, memory the file of Memory.
	connection = 3
	memory     = 4
)

// ErrAlone: this process was not started as a worker.
var ErrAlone = errors.New("engines and their command line start this program; its parent is missing")

// Inherited returns what a worker process has from its parent.
func Inherited() (*os.File, Memory, error) {
	conn, shared := os.NewFile(connection, "parent"), os.NewFile(memory, "memory")
	for _, f := range []*os.File{conn, shared} {
		if _, err := f.Stat(); err != nil {
			return nil, nil, ErrAlone
		}
	}
	m, err := mapMemory(shared)
	if err != nil {
		return nil, nil, fmt.Errorf("memory of the parent: %w", err)
	}
	return conn, m, shared.Close()
}
