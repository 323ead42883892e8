package window_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/window"
	"ankole.storage/dataplane/wire"
)

func TestWindow(t *testing.T) {
	w, err := window.New()
	if err != nil {
		t.Fatal(err)
	}
	there, err := window.Open(&w.Offer)
	if err != nil {
		t.Fatal(err)
	}
	if len(there) != wire.WindowSize || len(w.Mem) != wire.WindowSize {
		t.Fatalf("%d and %d bytes", len(there), len(w.Mem))
	}
	w.Mem[wire.WindowSize-1] = 7
	if there[wire.WindowSize-1] != 7 {
		t.Error("the memory is not shared")
	}
	// Whoever has it keeps it.
	if err := w.Free(); err != nil {
		t.Fatal(err)
	}
	there[0]++
	if there[wire.WindowSize-1] != 7 {
		t.Error("the memory went with its maker")
	}
	if err := window.Free(there); err != nil {
		t.Fatal(err)
	}
	if _, err := window.Open(&w.Offer); !errors.Is(err, window.ErrOffer) {
		t.Errorf("a window that is gone: %v", err)
	}
}

// The size cannot change: no access to the memory can fail.
func TestWindowIsSealed(t *testing.T) {
	w, err := window.New()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Free() }()
	for _, size := range []int64{0, wire.WindowSize - 4096, wire.WindowSize + 4096} {
		if err := unix.Ftruncate(w.Offer.FD, size); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncated to %d: %v", size, err)
		}
	}
}

// memfd makes a file in memory that is no window in one respect.
func memfd(t *testing.T, name string, size int64, seals int) int {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		err = unix.Ftruncate(fd, size)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// What is no window is not mapped, and nothing but a file in memory is even opened: to open a pipe
// would wait for somebody at its other end.
func TestWhatIsNoWindow(t *testing.T) {
	const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	pipeFD, err := unix.Open(pipe, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipeFD)
	file, err := os.Create(filepath.Join(dir, "memfd:ankole-window"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(wire.WindowSize); err != nil {
		t.Fatal(err)
	}
	w, err := window.New()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Free() }()
	token := make([]byte, wire.TokenSize)
	for name, o := range map[string]wire.WindowOffer{
		"nothing":           {},
		"no process":        {PID: 1 << 30, FD: 3, Token: token},
		"no descriptor":     {PID: os.Getpid(), FD: 1 << 20, Token: token},
		"a negative one":    {PID: os.Getpid(), FD: -1, Token: token},
		"a short token":     {PID: os.Getpid(), FD: w.Offer.FD, Token: w.Offer.Token[:8]},
		"another token":     {PID: os.Getpid(), FD: w.Offer.FD, Token: token},
		"a pipe":            {PID: os.Getpid(), FD: pipeFD, Token: token},
		"a file":            {PID: os.Getpid(), FD: int(file.Fd()), Token: token},
		"memory of another": {PID: os.Getpid(), FD: memfd(t, "other", wire.WindowSize, sealed), Token: token},
		"not sealed":        {PID: os.Getpid(), FD: memfd(t, "ankole-window", wire.WindowSize, 0), Token: token},
		"another size":      {PID: os.Getpid(), FD: memfd(t, "ankole-window", 4096, sealed), Token: token},
	} {
		t.Run(name, func(t *testing.T) {
			mem, err := window.Open(&o)
			if !errors.Is(err, window.ErrOffer) || mem != nil || strings.Count(err.Error(), "window") == 0 {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := window.Open(&wire.WindowOffer{PID: os.Getpid(), FD: memfd(t, "ankole-window", wire.WindowSize, sealed),
		Token: token}); err != nil {
		t.Errorf("one that is a window: %v", err)
	}
}
