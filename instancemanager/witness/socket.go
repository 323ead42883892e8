package witness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"ankole.storage/listener"
)

// maxSocketPath is the kernel's limit for the path of a unix socket.
const maxSocketPath = 107

// ListenUnix opens the socket for engines: the owner's alone, in a directory of the owner's alone
// (created if missing). A socket left by a killed instance manager is replaced; one that somebody
// still listens on, and anything that is no socket, is an error.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("witness socket %s: the path has %d bytes, at most %d are possible; name a shorter one "+
			"with --witness-socket",
			path, len(path), maxSocketPath)
	}
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("witness socket: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("witness socket: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(owner.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("witness socket: %s must be a directory that belongs to user %d and nobody else can write to",
			dir, os.Geteuid())
	}
	if err := listener.RemoveStale(path); err != nil {
		return nil, fmt.Errorf("witness socket, of another instance manager perhaps: %w", err)
	}
	l, err := listener.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("witness socket: %w", err)
	}
	// Nobody else gets past the directory before this.
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("witness socket: %w", err)
	}
	return l, nil
}
