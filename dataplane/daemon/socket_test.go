package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/frontend/nbd"
	"ankole.storage/dataplane/loop/posix"
	"ankole.storage/host/hostpath"
)

// TestShortSocketPath: where a volume's socket has too long a path, its short one is in a folder of
// this user's, whoever else has such clusters on the machine. A folder to which others may write is
// not used.
func TestShortSocketPath(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	deep := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	path, err := socketIn(deep, "vol")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	if filepath.Dir(dir) != tmp || !strings.HasSuffix(dir, "-"+strconv.Itoa(os.Geteuid())) {
		t.Errorf("it is at %s", path)
	}
	if other, err := socketIn(deep, "other"); err != nil || other == path {
		t.Errorf("another volume's is at %s, %v", other, err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if path, err := socketIn(deep, "vol"); err == nil {
		t.Errorf("it is at %s, where anybody can take it away", path)
	}
}

// TestSocketOfAnotherProcess: an engine goes on with the socket of the one before, wherever that
// has made it; says so; and takes it away at the end.
func TestSocketOfAnotherProcess(t *testing.T) {
	t.Setenv(hostpath.Variable, fmt.Sprintf(`{%q: %q}`, socketDir, t.TempDir()))
	path := filepath.Join(t.TempDir(), "elsewhere")
	listener, _, err := posix.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s, c := slowEngine(t)
	s.p.life.follows = 4
	export := func() *frontend.Export {
		return &frontend.Export{Transport: nbd.Transport, State: []byte(`{"version":1,"export":"vol","size":1048576}`),
			Descriptors: []frontend.Descriptor{{Kind: "listener", FD: int(listener)}}}
	}
	attach, err := s.p.importFrontend(FrontendBlockdev, export(), 4)
	if err != nil {
		t.Fatal(err)
	}
	go func() { <-c.arrived; close(c.release) }()
	s.p.front.mu.Lock()
	err = attach()
	s.p.front.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := s.p.state.get(); !strings.HasSuffix(v.endpoint, "="+path) {
		t.Errorf("the endpoint is %s, and the socket %s", v.endpoint, path)
	}
	close(s.p.life.begun)
	if _, err := s.FrontendShutdown(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("at its end the socket is there: %v", err)
	}
	if listener, _, err = posix.Listen("unix", path); err != nil {
		t.Fatal(err)
	}
	s.p.front.mu.Lock()
	s.p.withdraw(export())
	s.p.front.mu.Unlock()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("it is withdrawn, and the socket there: %v", err)
	}
}
