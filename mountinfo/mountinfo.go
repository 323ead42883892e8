// Package mountinfo reads the kernel's table of mounts, /proc/<pid>/mountinfo, as proc(5) describes
// it:
//
//	36 35 98:0 /root /mount/point rw,noatime shared:1 - ext4 /dev/source rw,errors=continue
package mountinfo

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Mount is a line of the table. A mount has options of its own, as they were asked for, and those
// of the file system behind it, which all its mounts share.
type Mount struct {
	ID int
	// Device has the form "major:minor".
	Device         string
	Target, Source string
	Options, Super []string
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

func parse(line string) (m Mount, ok bool) {
	mount, system, ok := strings.Cut(line, " - ")
	a, b := strings.Split(mount, " "), strings.Split(system, " ")
	if !ok || len(a) < 6 || len(b) < 3 {
		return m, false
	}
	id, err := strconv.Atoi(a[0])
	return Mount{ID: id, Device: a[2], Target: unescape(a[4]), Source: unescape(b[1]), Options: strings.Split(a[5], ","),
		Super: strings.Split(b[2], ",")}, err == nil
}

// unescape turns the kernel's \ooo for blanks back.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
