// Package share mounts the share of a backup target (nfs://, cifs://) for the process that uses it.
//
// A share is mounted in a mount namespace that the process has for itself, and all that the
// namespace had before is detached. So nothing of the node waits for the server of a share, a
// process that cannot be ended because it waits pins no file system of the node, and the kernel
// unmounts the share when the last thread of the process has ended.
package share

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/backup/target"
)

// connectWait is how long each address of a server may take to accept a connection.
const connectWait = 5 * time.Second

// folder is where the share is, in the root that the process has then.
const folder = "/store"

// Is says whether a target is a share.
func Is(t *target.Target) bool { return t.Kind == target.NFS || t.Kind == target.CIFS }

// Namespace gives a process that is to be started the mount namespace that Mount wants.
func Namespace() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // os/exec makes its mounts private
}

// Mount mounts the share of a target and returns its directory. Nothing but that is in the file
// system of this process then. It may wait in the kernel for as long as the server lets it.
func Mount(ctx context.Context, t *target.Target, c target.Credentials) (dir string, err error) {
	if err := alone(); err != nil {
		return "", fmt.Errorf("mount %s: %w", t, err)
	}
	address, err := reach(ctx, t)
	if err != nil {
		return "", err
	}
	attempts, err := plan(t, c, address)
	if err != nil {
		return "", err
	}
	if err := ownRoot(); err != nil {
		return "", fmt.Errorf("mount %s: a root for it: %w", t, err)
	}
	for _, a := range attempts {
		if err = unix.Mount(a.source, folder, a.fsType, a.flags, a.data); err == nil {
			return folder, nil
		}
		if !another(err) {
			break
		}
	}
	return "", explain(t, err)
}

// alone makes sure that the mount namespace is not that of the process that has started this one.
func alone() error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	parent, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()))
	if err == nil && own == parent {
		err = errors.New("this process has no mount namespace of its own")
	}
	return err
}

// reach connects to the server of a share and returns the address that has answered.
func reach(ctx context.Context, t *target.Target) (netip.Addr, error) {
	d := net.Dialer{Timeout: connectWait}
	conn, err := d.DialContext(ctx, "tcp", server(t))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%s: its server does not answer: %w", t, err)
	}
	defer conn.Close()
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	return at.Addr().Unmap(), err
}

// ownRoot gives the process an empty root with the folder for the share, and detaches all other
// mounts of its namespace.
func ownRoot() error {
	const place = "/proc" // there is one everywhere; it is covered in this namespace only
	if err := unix.Mount("tmpfs", place, "tmpfs", alwaysFlags, "mode=0700,size=64k"); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	if err := os.Mkdir(place+folder, 0o700); err != nil {
		return err
	}
	if err := os.Chdir(place); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil { // the old root is on top of the new one then
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the old root: %w", err)
	}
	return os.Chdir("/")
}
