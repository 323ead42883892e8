package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is a file, folder or link of an image.
type entry struct {
	from string // on this machine; empty for a folder that only has to be there
	mode fs.FileMode
	link string
}

// tree is what an image holds: entries by path without the leading slash.
type tree map[string]entry

// gather collects the files of a target. Folders on the way to a file are made.
func gather(context string, t *target) (tree, error) {
	files := tree{"tmp": {mode: fs.ModeDir | fs.ModeSticky | 0o777}}
	for _, c := range t.copies {
		from := filepath.Join(context, c.from)
		if !strings.HasSuffix(c.from, "/") {
			to := c.to
			if strings.HasSuffix(to, "/") {
				to += path.Base(c.from)
			}
			if err := files.add(from, to); err != nil {
				return nil, fmt.Errorf("image %s: %w", t.name, err)
			}
			continue
		}
		err := filepath.WalkDir(from, func(p string, _ fs.DirEntry, err error) error {
			rel, relErr := filepath.Rel(from, p)
			if err != nil || relErr != nil || rel == "." {
				return cmp.Or(err, relErr)
			}
			return files.add(p, path.Join(c.to, filepath.ToSlash(rel)))
		})
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", t.name, err)
		}
	}
	return files, nil
}

func (f tree) add(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	e := entry{from: from, mode: info.Mode()}
	if e.mode&fs.ModeSymlink != 0 {
		if e.link, err = os.Readlink(from); err != nil {
			return err
		}
	} else if !e.mode.IsRegular() && !e.mode.IsDir() {
		return fmt.Errorf("%s is neither file, folder nor link", from)
	}
	name := strings.Trim(path.Clean(to), "/")
	f[name] = e
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, ok := f[dir]; !ok {
			f[dir] = entry{mode: fs.ModeDir | 0o755}
		}
	}
	return nil
}

// layer writes the tree as an archive that depends on nothing but names, contents and who may run
// what: sorted, without times, owned by root.
func (f tree) layer() ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if err := f[name].write(w, name); err != nil {
			return nil, fmt.Errorf("/%s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (e entry) write(w *tar.Writer, name string) error {
	h := &tar.Header{Name: name, Format: tar.FormatPAX, ModTime: time.Unix(0, 0)}
	switch {
	case e.mode.IsDir():
		h.Typeflag, h.Name, h.Mode = tar.TypeDir, name+"/", 0o755
		if e.mode&fs.ModeSticky != 0 {
			h.Mode = 0o1777
		}
		return w.WriteHeader(h)
	case e.link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.link, 0o777
		return w.WriteHeader(h)
	}
	file, err := os.Open(e.from)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	h.Typeflag, h.Size, h.Mode = tar.TypeReg, info.Size(), 0o644
	if e.mode&0o111 != 0 {
		h.Mode = 0o755
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(w, file)
	return err
}
