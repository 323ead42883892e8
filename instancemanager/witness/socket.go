package witness

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"ankole.storage/host/listener"
)

// ListenUnix opens the socket for engines: the owner's alone, in a directory of the owner's alone
// (created if missing). A socket left by a killed instance manager is replaced; one that somebody
// still listens on, and anything that is no socket, is an error.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > listener.MaxName {
		return nil, fmt.Errorf("witness socket %s: the path has %d bytes, at most %d are possible; name a shorter one "+
			"with --witness-socket",
			path, len(path), listener.MaxName)
	}
	if err := listener.OwnFolder(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("witness socket: %w", err)
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

// RelaySocket is where the instance manager of a Pod takes in the agent of its node, as Pods see
// it. Only processes of the node reach it.
func RelaySocket(pod string) string {
	return "/host/var/lib/longhorn/unix-domain-socket/witness-" + pod + ".sock"
}

// ListenRelay opens it. Its directory is there, and root's.
func ListenRelay(path string) (net.Listener, error) {
	if err := listener.RemoveStale(path); err != nil {
		return nil, err
	}
	l, err := listener.ListenUnix("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l.Streams(), nil
}
