package testcluster

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(BinVariable, dir)
	if _, err := Program(); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, ProgramName)) ||
		!strings.Contains(err.Error(), BinVariable) {
		t.Errorf("error %v must name the file looked for and the variable", err)
	}
	if err := os.WriteFile(filepath.Join(dir, ProgramName), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Program(); err != nil || got != filepath.Join(dir, ProgramName) {
		t.Errorf("program %q, %v", got, err)
	}
}

func TestModuleRoot(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if wd, _ := os.Getwd(); wd != filepath.Join(root, "test/testcluster") {
		t.Errorf("root %s seen from %s", root, wd)
	}
}

func TestArguments(t *testing.T) {
	o := Options{Nodes: 2, NodeGrace: 7 * time.Second, Images: "/i", Args: []string{"--node-cpu", "4"}}
	got := o.arguments("/d")
	for _, want := range [][]string{
		{"--dir", "/d"}, {"--nodes", "2"}, {"--node-grace", "7s"}, {"--images", "/i"}, {"--no-manager"}, {"--node-cpu", "4"},
		{"--exit-with-stdin"}, {"--ready-file", "/d/ready.json"}, {"--device-dir", "/d/dev"},
	} {
		i := slices.Index(got, want[0])
		if i < 0 || (len(want) == 2 && got[i+1] != want[1]) {
			t.Errorf("%v are not among %v", want, got)
		}
	}
	o = Options{Manager: true}
	if got := o.arguments("/d"); slices.Contains(got, "--no-manager") || got[slices.Index(got, "--nodes")+1] != "3" {
		t.Errorf("arguments %v", got)
	}
}

// TestFreeNetwork: what it gives can be listened on, and is not what the program takes by default.
func TestFreeNetwork(t *testing.T) {
	n := freeNetwork()
	if !strings.HasPrefix(n, "127.") || strings.HasPrefix(n, "127.0.") || !strings.HasSuffix(n, ".0") {
		t.Fatalf("network %s", n)
	}
	l, err := net.Listen("tcp", strings.TrimSuffix(n, "0")+"1:10250")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func TestTailBuffer(t *testing.T) {
	var b tailBuffer
	for range 3 {
		if n, err := b.Write([]byte(strings.Repeat("x", logTail/2) + "y")); err != nil || n != logTail/2+1 {
			t.Fatalf("wrote %d, %v", n, err)
		}
	}
	if got := b.String(); len(got) != logTail || !strings.HasSuffix(got, "xy") {
		t.Errorf("kept %d bytes, want the last %d", len(got), logTail)
	}
}
