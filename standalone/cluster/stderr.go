package cluster

import (
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// stderrGuard keeps the terminal for our own lines: some of the libraries write to standard error
// whatever one tells them. Their lines go to a file; a crash of the process is still shown.
type stderrGuard struct{ terminal *os.File }

func guardStderr(path string) (*stderrGuard, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	defer func() { _ = f.Close() }()
	saved, err := unix.FcntlInt(uintptr(unix.Stderr), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("logs: keep standard error: %w", err)
	}
	terminal := os.NewFile(uintptr(saved), "stderr")
	if err := debug.SetCrashOutput(terminal, debug.CrashOptions{}); err != nil {
		return nil, fmt.Errorf("logs: crash output: %w", err)
	}
	if err := unix.Dup3(int(f.Fd()), unix.Stderr, 0); err != nil {
		return nil, fmt.Errorf("logs: redirect standard error: %w", err)
	}
	return &stderrGuard{terminal}, nil
}

// restore gives standard error back.
func (g *stderrGuard) restore() { _ = unix.Dup3(int(g.terminal.Fd()), unix.Stderr, 0) }
