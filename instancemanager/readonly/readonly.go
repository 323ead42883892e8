// Package readonly finds file systems on volumes that the kernel has made read-only.
//
// When a file system meets an error that it cannot live with, it refuses to write from then on
// (ext4 with errors=remount-ro, btrfs), or altogether (a shutdown). Nobody tells the volume: its
// engine goes on serving, and all that can be seen is in the host's table of mounts. There a mount
// has options of its own, "rw" or "ro" as it was asked for, and those of the file system behind it.
// A mount that may write to a file system that does not is one that has gone read-only by itself.
package readonly

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/instancemanager/process"
	"ankole.storage/mountinfo"
)

// Condition is what is told of an engine whose volume has such a file system.
const Condition = "FilesystemReadOnly"

// Period is how often the table of mounts is looked at; the number is the reference's.
const Period = 10 * time.Second

// Devices of a volume, as the Pod sees them: its own, and the decrypted one on top of it.
const (
	deviceDirectory = "/dev/longhorn/"
	mapperDirectory = "/dev/mapper/"
)

// hostTable is the table of the host's mounts as a Pod sees it, ownTable that of a process without
// a mount namespace of its own.
const (
	hostTable = "/host/proc/1/mountinfo"
	ownTable  = "/proc/self/mountinfo"
)

// Checker looks at the volumes of running engines.
type Checker struct {
	Manager *process.Manager
	// Resolve turns a path of the Pod into the one to open.
	Resolve func(string) string
	Log     *slog.Logger
	// Period is that between two looks.
	Period time.Duration
}

// Run looks until ctx ends.
func (c *Checker) Run(ctx context.Context) {
	tick := time.NewTicker(c.Period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := c.Look(); err != nil {
				c.Log.Warn("cannot tell whether file systems on volumes are read-only", "err", err)
			}
		}
	}
}

// Look tells the Manager which engines' volumes have a file system that has gone read-only, and
// which no longer have one.
func (c *Checker) Look() error {
	engines := c.engines()
	if len(engines) == 0 {
		return nil
	}
	gone, err := c.readTable()
	if err != nil {
		return err
	}
	for _, e := range engines {
		volume := volumeOf(e.Spec.Name)
		device := c.Resolve(deviceDirectory + volume)
		bad := gone[device] || gone[numbers(device)] || gone[mapperDirectory+volume]
		// An engine of which there is nothing to tell has no condition: most never get one.
		if bad != e.Conditions[Condition] {
			c.Log.Warn("file system of a volume", "volume", volume, "readOnly", bad)
			c.Manager.SetCondition(e.Spec.Name, e.UUID, Condition, bad)
		}
	}
	return nil
}

func (c *Checker) engines() []process.Status {
	list, _ := c.Manager.List()
	return slices.DeleteFunc(list, func(p process.Status) bool {
		return p.State != process.Running || !process.IsEngine(p.Spec.Name)
	})
}

// volumeOf takes the end off an engine's name, <volume>-e-<suffix>.
func volumeOf(engine string) string { return engine[:strings.LastIndex(engine, "-e-")] }

// readTable returns the devices of file systems that have gone read-only, by name and by numbers.
func (c *Checker) readTable() (map[string]bool, error) {
	f, err := os.Open(c.Resolve(hostTable))
	if err != nil {
		f, err = os.Open(ownTable)
	}
	if err != nil {
		return nil, fmt.Errorf("table of mounts: %w", err)
	}
	defer f.Close()
	return goneReadOnly(f)
}

// numbers returns "major:minor" of a block device, or nothing if it is none.
func numbers(path string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ""
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
}

// goneReadOnly reads a table of mounts and returns sources and numbers of those that may write
// while their file system does not.
func goneReadOnly(r io.Reader) (map[string]bool, error) {
	found := map[string]bool{}
	err := mountinfo.Each(r, func(m *mountinfo.Mount) {
		if !m.ReadOnly() && m.Refuses() != "" {
			found[m.Device], found[m.Source] = true, true
		}
	})
	return found, err
}
