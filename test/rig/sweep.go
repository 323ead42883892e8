package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Names of the temporary directories: short, since sockets live below them.
const (
	prefix     = "rig-"
	keptPrefix = "rig-failed-"
	lockName   = "lock"
)

// makeDirectory makes a volume's directory and locks it for the life of this process.
func makeDirectory() (string, *os.File, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	return dir, f, errors.Join(err, os.Mkdir(filepath.Join(dir, "logs"), 0o700))
}

// keepDirectory gives the directory of a failed test a name that the sweep leaves alone.
func keepDirectory(dir string) string {
	kept := filepath.Join(filepath.Dir(dir), keptPrefix+strings.TrimPrefix(filepath.Base(dir), prefix))
	if err := os.Rename(dir, kept); err != nil {
		return dir
	}
	return kept
}

// sweep runs once per test process.
var sweep sync.Once

// sweepDead removes what test processes left that were killed: their directories are not locked any
// more.
func sweepDead() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*")) // the pattern is well formed
	for _, dir := range dirs {
		if strings.HasPrefix(filepath.Base(dir), keptPrefix) {
			continue
		}
		if err := sweepOne(dir); err != nil {
			fmt.Fprintf(os.Stderr, "what a killed test left in %s stays: %v\n", dir, err)
		}
	}
}

func sweepOne(dir string) error {
	f, err := os.Open(filepath.Join(dir, lockName))
	if errors.Is(err, os.ErrNotExist) {
		return nil // just being made, or none of ours
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // in use
	}
	devices, _ := filepath.Glob(filepath.Join(dir, "*", "dev")) // the pattern is well formed
	for _, d := range devices {
		if err := sweepDevices(d); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}
