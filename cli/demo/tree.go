package demo

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// manifestName is the file that lists the checksums of all others, in the form sha256sum reads. It
// is written last: where it is, the tree is complete.
const manifestName = "MANIFEST.sha256"

// Shape of the tree: many small files, as of a project, and a few large ones, as of a database.
const (
	treeFolders   = 12
	filesInFolder = 16
	smallFile     = 24 << 10 // at most
	largeFiles    = 4
	largeFile     = 8 << 20
)

// tree is what is in a tree of files.
type tree struct {
	files int
	bytes int64
}

func (t tree) String() string { return fmt.Sprintf("%d files, %d MiB", t.files, t.bytes>>20) }

// makeTree writes the tree below a directory, the manifest last, each file synced if sync is set.
func makeTree(dir string, sync bool) (tree, error) {
	var t tree
	sums := map[string]string{}
	put := func(name string, n int, seed uint64) error {
		sum, err := makeFile(filepath.Join(dir, name), n, seed, sync)
		sums[name] = sum
		t.files, t.bytes = t.files+1, t.bytes+int64(n)
		return err
	}
	sizes := rand.New(rand.NewPCG(1, 2))
	for folder := range treeFolders {
		for file := range filesInFolder {
			name := fmt.Sprintf("project/part-%02d/file-%02d.dat", folder, file)
			if err := put(name, 1+sizes.IntN(smallFile), uint64(folder<<8|file)); err != nil {
				return t, err
			}
		}
	}
	for i := range largeFiles {
		if err := put(fmt.Sprintf("database/table-%d.db", i), largeFile, uint64(1<<32+i)); err != nil {
			return t, err
		}
	}
	return t, writeManifest(dir, sums, sync)
}

// makeFile writes a file of pseudo-random bytes and returns its SHA-256.
func makeFile(path string, n int, seed uint64, sync bool) (string, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	source := rand.NewChaCha8(seedOf(seed))
	if _, err := io.CopyN(io.MultiWriter(f, sum), source, int64(n)); err != nil {
		return "", err
	}
	if sync {
		if err := f.Sync(); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), f.Close()
}

// seedOf spreads a number over the seed of a generator.
func seedOf(n uint64) [32]byte { return sha256.Sum256(fmt.Append(nil, "ankole demo ", n)) }

func writeManifest(dir string, sums map[string]string, sync bool) error {
	var b strings.Builder
	names := make([]string, 0, len(sums))
	for name := range sums {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(&b, "%s  %s\n", sums[name], name)
	}
	temporary := filepath.Join(dir, manifestName+".new")
	f, err := os.Create(temporary)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(b.String()); err != nil {
		return err
	}
	if sync {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return errors.Join(f.Close(), os.Rename(temporary, filepath.Join(dir, manifestName)))
}

// hasTree reports whether a complete tree is below a directory.
func hasTree(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// verifyTree reads every file of a tree and compares it with the manifest. One file missing,
// changed or too many is an error that names it.
func verifyTree(dir string) (tree, error) {
	var t tree
	f, err := os.Open(filepath.Join(dir, manifestName))
	if err != nil {
		return t, err
	}
	defer f.Close()
	known := map[string]bool{manifestName: true}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		want, name, ok := strings.Cut(lines.Text(), "  ")
		if !ok || !filepath.IsLocal(name) {
			return t, fmt.Errorf("%s has the line %q", manifestName, lines.Text())
		}
		known[name] = true
		got, n, err := sumFile(filepath.Join(dir, name))
		if err != nil {
			return t, err
		}
		if got != want {
			return t, fmt.Errorf("file %s has the checksum %.16s…, it was written with %.16s…", name, got, want)
		}
		t.files, t.bytes = t.files+1, t.bytes+n
	}
	if err := lines.Err(); err != nil {
		return t, err
	}
	if t.files == 0 {
		return t, fmt.Errorf("%s lists no files", manifestName)
	}
	return t, nothingElse(filepath.Join(dir, "project"), dir, known)
}

// nothingElse refuses files that the manifest does not know.
func nothingElse(part, dir string, known map[string]bool) error {
	return filepath.WalkDir(part, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil && !known[name] {
			err = fmt.Errorf("file %s was never written", name)
		}
		return err
	})
}

func sumFile(path string) (string, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), n, err
}
