package listener

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// MaxName is the longest path of a unix socket that the kernel takes (unix(7), sun_path), in bytes.
const MaxName = 107

// Reach gives a name for the unix socket at path that the kernel takes however long the path is:
// through a descriptor of its folder, which release closes. Whoever listens under that name wants
// it until the end, since the socket is removed under it.
func Reach(path string) (name string, release func(), err error) {
	if len(path) <= MaxName {
		return path, func() {}, nil
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, fmt.Errorf("folder of a unix socket: %w", err)
	}
	name = "/proc/self/fd/" + strconv.Itoa(int(folder.Fd())) + "/" + filepath.Base(path)
	return name, func() { _ = folder.Close() }, nil
}

// DialUnix connects to the stream socket at a path of any length.
func DialUnix(ctx context.Context, path string) (net.Conn, error) {
	name, release, err := Reach(path)
	if err != nil {
		return nil, err
	}
	defer release()
	return new(net.Dialer).DialContext(ctx, "unix", name)
}
