package vm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// initramfs is a file system in memory, as the kernel reads it: an archive of cpio, format newc.
type initramfs struct {
	w       *bufio.Writer
	written int64
	inode   int
	err     error
}

// kinds of files in an archive.
const (
	modeDirectory = 0o040000
	modeFile      = 0o100000
	modeLink      = 0o120000
)

func (a *initramfs) put(name string, mode fs.FileMode, kind int, size int64, content io.Reader) {
	if a.err != nil {
		return
	}
	a.inode++
	fields := []any{a.inode, kind | int(mode.Perm()), 0, 0, 1, 0, size, 0, 0, 0, 0, len(name) + 1, 0}
	var n int64
	head, err := fmt.Fprintf(a.w, "070701"+strings.Repeat("%08x", len(fields))+"%s\x00", append(fields, name)...)
	a.written += int64(head)
	a.pad()
	if err == nil {
		n, err = io.Copy(a.w, content)
	}
	if err == nil && n != size {
		err = fmt.Errorf("%s has %d bytes, not %d", name, n, size)
	}
	a.written += n
	a.pad()
	a.err = errors.Join(a.err, err)
}

func (a *initramfs) pad() {
	for ; a.written%4 != 0; a.written++ {
		_ = a.w.WriteByte(0) // an error stays until the end
	}
}

func (a *initramfs) text(name, text string, mode fs.FileMode) {
	a.put(name, mode, modeFile, int64(len(text)), strings.NewReader(text))
}

func (a *initramfs) directory(name string) {
	a.put(name, 0o755, modeDirectory, 0, strings.NewReader(""))
}

func (a *initramfs) link(name, to string) {
	a.put(name, 0o777, modeLink, int64(len(to)), strings.NewReader(to))
}

func (a *initramfs) file(name, path string) {
	f, err := os.Open(path)
	if err != nil {
		a.err = errors.Join(a.err, err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	a.err = errors.Join(a.err, err)
	if err == nil {
		a.put(name, info.Mode(), modeFile, info.Size(), f)
	}
}

// tree puts a folder into the archive, but for what skip names.
func (a *initramfs) tree(root string, skip func(name string) bool) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case skip(name) && d.IsDir():
			return filepath.SkipDir
		case skip(name):
		case d.IsDir():
			a.directory(name)
		case d.Type() == fs.ModeSymlink:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			a.link(name, to)
		case d.Type().IsRegular():
			a.file(name, path)
		}
		return a.err
	})
	a.err = errors.Join(a.err, err)
}

// end completes the archive.
func (a *initramfs) end() error {
	a.put("TRAILER!!!", 0, 0, 0, strings.NewReader(""))
	return errors.Join(a.err, a.w.Flush())
}
