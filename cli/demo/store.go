package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// label is the label of the file system; a volume that carries it belongs to the demonstration.
const label = "ankole-demo"

// content is what is found on a volume.
type content int

const (
	// contentNothing is a volume never written to.
	contentNothing content = iota
	// contentPart is a tree of ours whose writing was cut off.
	contentPart
	// contentTree is a complete tree of ours.
	contentTree
	// contentForeign is somebody's data; it is not touched.
	contentForeign
)

// store is a place on a volume for a tree of files and for what the writer writes.
type store interface {
	// Inspect says what is there.
	Inspect(ctx context.Context) (content, error)
	// Fill writes the tree, synced.
	Fill(ctx context.Context) (tree, error)
	// Verify reads the tree back from the volume, past any cache, and compares every checksum.
	Verify(ctx context.Context) (tree, error)
	// Scratch returns the writer's area and where it begins and ends.
	Scratch() (area area, from, to int64, err error)
	// Describe says how the volume is used.
	Describe() string
	Close() error
}

// area is where the writer writes.
type area interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	Flush() error
}

// openStore chooses how to use an endpoint: mounted where that is possible, as an image otherwise.
func openStore(ctx context.Context, endpoint string) (store, error) {
	if isBlockDevice(endpoint) && os.Geteuid() == 0 {
		m, err := newMounted(endpoint)
		if err == nil {
			return m, nil
		}
		if !errors.Is(err, unix.EPERM) && !errors.Is(err, errNoTool) {
			return nil, err
		}
	}
	d, err := openDevice(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	return newImage(d, endpoint), nil
}

func isBlockDevice(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode()&os.ModeDevice != 0 && st.Mode()&os.ModeCharDevice == 0
}

const (
	// superblockAt, magicAt and labelAt are where an ext4 file system says what it is and how it is
	// called.
	superblockAt = 1024
	magicAt      = superblockAt + 0x38
	labelAt      = superblockAt + 0x78
	labelSize    = 16
)

// headContent judges a volume by its first bytes.
func headContent(head []byte) content {
	if len(bytes.Trim(head, "\x00")) == 0 {
		return contentNothing
	}
	name, _, _ := bytes.Cut(head[labelAt:labelAt+labelSize], []byte{0})
	if head[magicAt] == 0x53 && head[magicAt+1] == 0xef && string(name) == label {
		return contentPart
	}
	return contentForeign
}

// errNoTool marks a program that is not installed.
var errNoTool = errors.New("is not installed; install the package e2fsprogs")

// findTool finds a program of e2fsprogs, which is often outside the path of users other than root.
func findTool(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		path := filepath.Join(dir, name)
		if st, err := os.Stat(path); err == nil && st.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s %w", name, errNoTool)
}

// tool runs a program of e2fsprogs; what it says is part of the error.
func tool(ctx context.Context, name string, args ...string) error {
	path, err := findTool(name)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBUGFS_PAGER=__none__")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
