package fsx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOnTheMachinesOwnFileSystem makes sure that what the exerciser blames others for is not its
// own.
func TestOnTheMachinesOwnFileSystem(t *testing.T) {
	x, err := Open(filepath.Join(t.TempDir(), "f"), 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if err := x.Step(); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAFlippedByteIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	x, err := Open(path, 2)
	if err != nil {
		t.Fatal(err)
	}
	for len(x.model) < 100 {
		if err := x.Step(); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{x.model[70] + 1}, 70); err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err == nil || !strings.Contains(err.Error(), "1 bytes from offset 70") ||
		!strings.Contains(err.Error(), "seed 2") {
		t.Errorf("got %v", err)
	}
}
