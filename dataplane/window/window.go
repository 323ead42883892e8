// Package window makes and maps the memory that an engine shares with a replica on its machine
// (docs/design/format-wire.md, Window).
//
// It is a memfd whose size cannot change, so that no access to a mapping of it can fail. The engine
// tells the replica, over their session, which descriptor of which process it is, and what its
// first bytes are. Those show that it is the file that was meant: the two may number processes in
// different ways.
package window

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/wire"
)

const (
	name  = "ankole-window"
	seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
)

// Window is one that was made here.
type Window struct {
	// Mem is the mapping, wire.WindowSize bytes.
	Mem []byte
	// Offer is what a replica maps it by.
	Offer wire.WindowOffer
	fd    int
}

// New makes a window.
func New() (*Window, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memory to share: %w", err)
	}
	w := &Window{fd: fd, Offer: wire.WindowOffer{PID: os.Getpid(), FD: fd, Token: make([]byte, wire.TokenSize)}}
	_, _ = rand.Read(w.Offer.Token) // it never fails
	if err = unix.Ftruncate(fd, wire.WindowSize); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err == nil {
		w.Mem, err = mapped(fd)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("memory to share: %w", err), unix.Close(fd))
	}
	copy(w.Mem, w.Offer.Token)
	return w, nil
}

// Free gives the window back. Whoever has mapped it keeps it until he does so too.
func (w *Window) Free() error { return errors.Join(unix.Munmap(w.Mem), unix.Close(w.fd)) }

func mapped(fd int) ([]byte, error) {
	return unix.Mmap(fd, 0, wire.WindowSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// ErrOffer: what is offered is no window, or cannot be reached from here.
var ErrOffer = errors.New("no window")

// Open maps the window that is offered; Free unmaps it. It opens nothing but a memfd.
func Open(o *wire.WindowOffer) ([]byte, error) {
	if o.PID <= 0 || o.FD < 0 || len(o.Token) != wire.TokenSize {
		return nil, fmt.Errorf("%w: descriptor %d of process %d, token of %d bytes", ErrOffer, o.FD, o.PID, len(o.Token))
	}
	// Without access at first: to open some files has an effect.
	path, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", o.PID, o.FD), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: descriptor %d of process %d: %w", ErrOffer, o.FD, o.PID, err)
	}
	defer unix.Close(path)
	here := fmt.Sprintf("/proc/self/fd/%d", path)
	if to, err := os.Readlink(here); err != nil || !strings.HasPrefix(to, "/memfd:"+name) {
		return nil, fmt.Errorf("%w: descriptor %d of process %d is of another file", ErrOffer, o.FD, o.PID)
	}
	fd, err := unix.Open(here, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOffer, err)
	}
	defer unix.Close(fd)
	return check(fd, o.Token)
}

// check maps fd if it is the file that was meant.
func check(fd int, token []byte) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOffer, err)
	}
	// Only a file in memory has seals.
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || got != seals || st.Size != wire.WindowSize {
		return nil, fmt.Errorf("%w: %d bytes instead of %d, or not sealed", ErrOffer, st.Size, wire.WindowSize)
	}
	mem, err := mapped(fd)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOffer, err)
	}
	if !bytes.Equal(mem[:wire.TokenSize], token) {
		return nil, errors.Join(fmt.Errorf("%w: its first bytes are others: another process has that number here", ErrOffer),
			Free(mem))
	}
	return mem, nil
}

// Free unmaps what Open has mapped.
func Free(mem []byte) error { return unix.Munmap(mem) }
