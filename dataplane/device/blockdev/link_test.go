package blockdev

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/test/lack"
)

// linked is a machine with two nodes whose folders are in one directory.
type linked struct {
	t    *testing.T
	root string
}

func newLinked(t *testing.T) *linked {
	wasLink, wasRun := linkRoot, runRoot
	linkRoot, runRoot = t.TempDir(), t.TempDir()
	t.Cleanup(func() { linkRoot, runRoot = wasLink, wasRun })
	return &linked{t: t, root: linkRoot}
}

func (l *linked) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// serve makes what stands for a device of node, with its lock.
func (l *linked) serve(node string) *Device {
	l.t.Helper()
	d := &Device{cfg: Config{Volume: "v", DeviceDir: filepath.Join(l.root, node)}, lock: -1}
	l.must(d.cfg.validate())
	l.must(os.MkdirAll(filepath.Dir(d.lockPath()), 0o755))
	l.must(os.MkdirAll(d.cfg.DeviceDir, 0o755))
	l.must(d.takeLock(l.t.Context(), 0))
	l.t.Cleanup(func() { unix.Close(d.lock) })
	l.must(os.WriteFile(d.Path(), nil, 0o600))
	l.must(d.cfg.relink())
	return d
}

func (l *linked) expect(when, want string) {
	l.t.Helper()
	if got, _ := os.Readlink(filepath.Join(l.root, "v")); got != want {
		l.t.Errorf("%s: the link leads to %q, want %q", when, got, want)
	}
}

// TestLinkFollowsTheVolume: the link leads to where the volume is attached, through a migration
// too, and goes with it.
func TestLinkFollowsTheVolume(t *testing.T) {
	l := newLinked(t)
	source := l.serve("node-1")
	l.expect("attached", "node-1/v")
	if got := source.Endpoint(); got != filepath.Join(l.root, "v") {
		t.Errorf("endpoint %s", got)
	}
	target := l.serve("node-2")
	l.expect("while it migrates", "node-1/v")
	l.must(source.removeOwnNode())
	l.expect("migrated", "node-2/v")
	l.must(target.removeOwnNode())
	l.expect("detached", "")
}

// TestLinkOfAKilledServer: a node that nobody serves keeps the link from nobody.
func TestLinkOfAKilledServer(t *testing.T) {
	l := newLinked(t)
	killed := l.serve("node-1")
	unix.Close(killed.lock)
	killed.lock = -1
	l.serve("node-2")
	l.expect("attached elsewhere", "node-2/v")
	l.must(killed.removeOwnNode()) // swept later
	l.expect("what was left is swept", "node-2/v")
}

// TestNoLink: a volume that is called like a node has its device in the node's folder only, and so
// has every volume where folders are elsewhere.
func TestNoLink(t *testing.T) {
	l := newLinked(t)
	l.must(os.MkdirAll(filepath.Join(l.root, "v"), 0o755))
	d := l.serve("node-1")
	if got := d.Endpoint(); got != d.Path() {
		t.Errorf("endpoint %s", got)
	}
	for _, dir := range []string{l.root, filepath.Join(l.root, "node-1", "dev")} {
		c := Config{Volume: "w", DeviceDir: dir}
		if c.link() != "" {
			t.Errorf("devices in %s have link %s", dir, c.link())
		}
		d := &Device{cfg: c}
		if got := d.Endpoint(); got != filepath.Join(dir, "w") {
			t.Errorf("endpoint %s", got)
		}
	}
}

// TestNodeOfWhoeverFollows: who leaves late takes the node of its own loop device along, and leaves
// that of another one.
func TestNodeOfWhoeverFollows(t *testing.T) {
	l := newLinked(t)
	d := l.serve("node-1")
	d.loop = 1 << 16
	for _, stays := range []bool{false, true} {
		l.must(os.RemoveAll(d.Path()))
		err := d.createNode()
		if errors.Is(err, unix.EPERM) {
			lack.Skip(t, "nodes of devices are made by root only")
		}
		l.must(err)
		if stays {
			d.node++
		}
		l.must(d.removeOwnNode())
		if exists(d.Path()) != stays {
			t.Errorf("after the end there is a node: %v, want %v", !stays, stays)
		}
	}
}
