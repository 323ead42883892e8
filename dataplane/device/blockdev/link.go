package blockdev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// linkRoot is where users look for block devices. On a machine with several process nodes each node
// has a folder of its own there, since a volume that migrates is offered on two of them; a link
// with the volume's name leads to the one where it is attached, so that users find it as on a real
// node.
var linkRoot = "/dev/longhorn"

// link is the path of that link; empty where the directory of devices is no folder in linkRoot.
func (c *Config) link() string {
	if filepath.Dir(filepath.Clean(c.DeviceDir)) != linkRoot {
		return ""
	}
	return filepath.Join(linkRoot, c.Volume)
}

// Endpoint is where users find the device: the link to its node if there is one, else its node.
func (d *Device) Endpoint() string {
	link := d.cfg.link()
	if st, err := os.Lstat(link); link == "" || err != nil || st.Mode()&os.ModeSymlink == 0 {
		return d.Path()
	}
	return link
}

// relink makes the link lead to a node that is served. One that does is left alone: the node of a
// migration's target comes while the source is in use. Without such a node the link goes. A folder
// of that name is another node's, and stays.
//
// Crash window: a link may be left that leads nowhere, or to a node that nobody serves; the next
// device of the volume corrects it.
func (c *Config) relink() error {
	link := c.link()
	if link == "" {
		return nil
	}
	if st, err := os.Lstat(link); err == nil && st.Mode()&os.ModeSymlink == 0 {
		return nil
	}
	target, _ := os.Readlink(link)
	for {
		to := c.served()
		switch {
		case len(to) == 0:
			if err := ignoreMissing(os.Remove(link)); err != nil {
				return fmt.Errorf("remove the link %s: %w", link, err)
			}
			if to = c.served(); len(to) == 0 { // else one has come meanwhile
				return nil
			}
			continue
		case slices.Contains(to, target):
			return nil
		}
		part := link + "." + filepath.Base(c.DeviceDir)
		err := ignoreMissing(os.Remove(part))
		if err == nil {
			err = os.Symlink(to[0], part)
		}
		if err == nil {
			err = os.Rename(part, link)
		}
		if err != nil {
			return fmt.Errorf("link %s to %s: %w", link, to[0], err)
		}
		return nil
	}
}

// served are the volume's nodes in folders of linkRoot, as links to them, whose server lives; the
// own one first.
func (c *Config) served() []string {
	own := filepath.Base(c.DeviceDir)
	folders, _ := os.ReadDir(linkRoot) // an unreadable one has none
	var found []string
	for _, f := range folders {
		other := Config{Volume: c.Volume, DeviceDir: filepath.Join(linkRoot, f.Name())}
		if f.Name() == own {
			other.RunDir = c.RunDir
		}
		if !f.IsDir() || other.validate() != nil {
			continue
		}
		d := &Device{cfg: other}
		if !exists(d.Path()) || !held(d.lockPath()) {
			continue
		}
		if to := filepath.Join(f.Name(), c.Volume); f.Name() == own {
			found = slices.Insert(found, 0, to)
		} else {
			found = append(found, to)
		}
	}
	return found
}

// held reports whether somebody holds a lock on a file. It takes none itself, which would be in the
// way of whoever is about to.
func held(path string) bool {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return false
	}
	locks, err := os.ReadFile("/proc/locks")
	if errors.Is(err, os.ErrNotExist) {
		return true // nobody knows
	}
	file := fmt.Sprintf(" %02x:%02x:%d ", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	return strings.Contains(string(locks), file)
}
