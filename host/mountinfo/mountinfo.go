// Package mountinfo reads the kernel's table of mounts, /proc/<pid>/mountinfo, as proc(5) describes
// it:
//
//	36 35 98:0 /root /mount/point rw,noatime shared:1 - ext4 /dev/source rw,errors=continue
package mountinfo

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Mount is a line of the table. A mount has options of its own, as they were asked for, and those
// of the file system behind it, which all its mounts share.
type Mount struct {
	ID int
	// Device has the form "major:minor".
	Device string
	// Root is what is mounted of the file system: "/", or the path of a directory or file in it.
	Root string
	// Type is that of the file system, "ext4".
	Target, Source, Type string
	Options, Super       []string
}

// ReadOnly says whether writing through this mount is not wanted.
func (m *Mount) ReadOnly() bool { return slices.Contains(m.Options, "ro") }

// Refuses returns the option by which the file system says that it takes no writes, or nothing:
// "ro" as wanted, or after an error on older kernels, "emergency_ro" after an error, "shutdown"
// when it was ended.
func (m *Mount) Refuses() string {
	for _, o := range []string{"shutdown", "emergency_ro", "ro"} {
		if slices.Contains(m.Super, o) {
			return o
		}
	}
	return ""
}

// maxLine bounds a line: three paths of 4096 bytes, each byte of which may be written as four, and
// options.
const maxLine = 64 << 10

// Each calls f for every line. Lines of another form are passed over, and longer ones: a
// container's file system names all its layers.
func Each(r io.Reader, f func(*Mount)) error {
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		line, more, err := lines.ReadLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("table of mounts: %w", err)
		}
		if m, ok := parse(string(line)); ok && !more {
			f(&m)
		}
		for more && err == nil { // the error comes again
			_, more, err = lines.ReadLine()
		}
	}
}

// looks bounds how often a table is read while it changes all the time.
const looks = 20

// Table returns the lines of a table, which read gives as a whole. It is read until it is the same
// twice: kernels before 5.8 leave lines out while other mounts go.
func Table(read func() ([]byte, error)) (all []Mount, err error) {
	var before []byte
	for i := range looks {
		text, err := read()
		if err != nil {
			return nil, err
		}
		if i > 0 && bytes.Equal(text, before) {
			err = Each(bytes.NewReader(text), func(m *Mount) { all = append(all, *m) })
			return all, err
		}
		before = text
	}
	return nil, fmt.Errorf("table of mounts: it was different at each of %d looks; retry", looks)
}

func parse(line string) (m Mount, ok bool) {
	all, err := mountinfo.GetMountsFromReader(strings.NewReader(line), nil)
	number, _, _ := strings.Cut(line, " ")
	if _, bad := strconv.Atoi(number); bad != nil || err != nil || len(all) != 1 {
		return m, false
	}
	i := all[0]
	return Mount{ID: i.ID, Device: fmt.Sprintf("%d:%d", i.Major, i.Minor), Root: i.Root, Target: i.Mountpoint,
		Source: i.Source, Type: i.FSType, Options: strings.Split(i.Options, ","),
		Super: strings.Split(i.VFSOptions, ",")}, true
}
