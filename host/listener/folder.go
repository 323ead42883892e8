package listener

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// OwnFolder makes a folder for sockets, one level deep, where others may make folders too, as in
// the system's temporary directory. One that is there must be this user's, and nobody else's to
// write to: whoever can take a socket away can listen in its place.
func OwnFolder(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(owner.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s must be a directory that belongs to user %d and nobody else can write to", path, os.Geteuid())
	}
	return nil
}
