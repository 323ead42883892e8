package statedir

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"ankole.storage/test/lack"
)

// folder is one that nobody else enters.
func folder(t *testing.T) string {
	t.Helper()
	path := t.TempDir()
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNobodyElseEnters: root keeps nothing in a folder that others can enter, or whose owner can
// change what is in it.
func TestNobodyElseEnters(t *testing.T) {
	if os.Geteuid() != 0 {
		lack.Less(t, "only root is asked for this")
		return
	}
	for _, c := range []struct {
		mode os.FileMode
		uid  int
		good bool
		tell string
	}{
		{0o700, 0, true, ""}, {0o755, 0, false, "chmod 700"}, {0o710, 0, false, "chmod 700"}, {0o701, 0, false, "chmod 700"},
		{0o702, 0, false, "chmod 700"}, {0o777 | os.ModeSticky, 0, false, "chmod 700"},
		{0o700, 65534, false, "belongs to user 65534"},
	} {
		path := t.TempDir()
		if err := errors.Join(os.Chown(path, c.uid, -1), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		d, err := Open(path)
		switch {
		case c.good && err != nil:
			t.Errorf("mode %v of %d: %v", c.mode, c.uid, err)
		case !c.good && (err == nil || !strings.Contains(err.Error(), c.tell) || !strings.Contains(err.Error(), "--dir")):
			t.Errorf("mode %v of %d: %v, want it refused with %q", c.mode, c.uid, err, c.tell)
		}
		if err != nil {
			continue
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOnlyOne(t *testing.T) {
	path := folder(t)
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, link} {
		_, err = Open(p)
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) ||
			!strings.Contains(err.Error(), "--dir") {
			t.Errorf("%s: error %v must be ErrInUse, name the pid and say what to do", p, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err = Open(link); err != nil {
		t.Fatalf("after Close: %v", err)
	}
	if d.Path() != path {
		t.Errorf("path %s, want the one behind the link, %s", d.Path(), path)
	}
	_ = d.Close()
}

// TestHolder: whoever finds a folder locked is told by whom, also before that one has noted itself.
func TestHolder(t *testing.T) {
	dir := folder(t)
	f, _, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, holder, err := Lock(dir); !errors.Is(err, ErrInUse) || holder != os.Getpid() {
		t.Errorf("held by %d: %v", holder, err)
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if _, holder, err := Lock(dir); !errors.Is(err, ErrInUse) || holder != 0 {
		t.Errorf("held by %d: %v", holder, err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "kill unknown") {
		t.Error(err)
	}
}

func TestPortsAreKept(t *testing.T) {
	path := folder(t)
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.Port("a", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Port("b", "127.0.0.1")
	if err != nil || a == b {
		t.Fatalf("ports %d and %d, %v", a, b, err)
	}
	_ = d.Close()
	if d, err = Open(path); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if again, err := d.Port("a", "127.0.0.1"); again != a || err != nil {
		t.Errorf("port moved from %d to %d, %v", a, again, err)
	}
	if err := os.WriteFile(d.Path("ports.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Port("a", "127.0.0.1"); err == nil || !strings.Contains(err.Error(), "ports.json") {
		t.Errorf("a broken file gives %v", err)
	}
}

func TestCheckPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := CheckPort("127.0.0.1", port, "--the-flag"); err == nil || !strings.Contains(err.Error(), "--the-flag") {
		t.Errorf("error %v must name the flag", err)
	}
	_ = l.Close()
	if err := CheckPort("127.0.0.1", port, "--the-flag"); err != nil {
		t.Error(err)
	}
}
