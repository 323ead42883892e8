package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/exec"
)

const (
	// edge is how much is read at both ends of a device before it counts as one without content: more
	// than blkid reads there, in bytes.
	edge = 2 << 20
	// headBytes begin every file system, volume manager and data base that does without one. They are
	// zero on a new device, and on one on which mkfs.ext4 was cut short: it clears them first and
	// writes the superblock in them last.
	headBytes = 2048
)

// content is what a device holds.
type content struct {
	// format of a file system, or what else was recognised; empty: nothing was.
	format string
	// half: a file system that mkfs.xfs has not completed. It cannot be mounted and has never held
	// anything.
	half bool
	// raw: there are data where nothing was recognised.
	raw bool
}

// formatPartitions stands for a table of partitions.
const formatPartitions = "partitions"

// signature is what shows a format whose name is not needed any further: blkid knows it better.
type signature struct {
	format string
	// at is an offset in bytes; a negative one counts from the end of the device.
	at    int64
	magic string
}

// signatures are those of mke2fs, mkfs.xfs and the formats that are most often found on block
// devices, from their own descriptions.
var signatures = []signature{
	{"ext4", 1080, "\x53\xef"},
	{"xfs", 0, "XFSB"},
	{"btrfs", 64<<10 + 64, "_BHRfS_M"},
	{"f2fs", 1024, "\x10\x20\xf5\xf2"},
	{"reiserfs", 64<<10 + 52, "ReIsEr"},
	{"LUKS", 0, "LUKS\xba\xbe"},
	{"LUKS", 16 << 10, "SKUL\xba\xbe"},
	{"LVM", 0, "LABELONE"}, {"LVM", 512, "LABELONE"}, {"LVM", 1024, "LABELONE"}, {"LVM", 1536, "LABELONE"},
	{"partitions", 510, "\x55\xaa"},
	{"partitions", 512, "EFI PART"},
	{"partitions", -512, "EFI PART"},
	{"md", 0, "\xfc\x4e\x2b\xa9"}, {"md", 4096, "\xfc\x4e\x2b\xa9"}, {"md", -8192, "\xfc\x4e\x2b\xa9"},
	{"swap", 4086, "SWAPSPACE2"},
	{"bluestore", 0, "bluestore block device"},
}

const (
	// zfs has rings of uberblocks near both ends, at multiples of 1 KiB. Each begins with a number in
	// the byte order of its writer.
	zfsBlock  = 1 << 10
	zfsLittle = "\x0c\xb1\xba\x00\x00\x00\x00\x00"
	zfsBig    = "\x00\x00\x00\x00\x00\xba\xb1\x0c"
)

// lookByHand is what a person does about content that blkid does not name.
const lookByHand = "attach the volume by hand and look at its device; if nothing on it is missed, make the file " +
	"system there"

// look says what a device holds. Whatever cannot be read is an error, since it may have been the
// place that shows it.
//
// blkid is not believed when it finds nothing: it says so too when it could not read, or could not
// open the device at all.
func (n *Server) look(d device) (c content, err error) {
	f, err := os.OpenFile(d.path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return c, err
	}
	// Open until blkid has ended: the kernel keeps what was read, for blkid to read again.
	defer f.Close()
	first, last, err := edges(f)
	if err != nil {
		return c, err
	}
	if c.format, err = n.blkid(d.path); err != nil {
		return c, err
	}
	c.half = halfFormatted(first)
	if c.format != "" {
		return c, nil
	}
	if c.half {
		return c, errors.New("blkid finds nothing where mkfs.xfs was cut short; " + lookByHand)
	}
	if seen := recognised(first, last); seen != "" {
		return c, fmt.Errorf("blkid finds nothing where there is %s; %s", seen, lookByHand)
	}
	c.raw = !zero(first[:headBytes])
	return c, nil
}

// edges reads the beginning and the end of a device.
func edges(f *os.File) (first, last []byte, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, nil, err
	}
	if size < headBytes {
		return nil, nil, fmt.Errorf("%s has %d bytes", f.Name(), size)
	}
	first, last = make([]byte, min(edge, size)), make([]byte, min(edge, size))
	if _, err := f.ReadAt(first, 0); err != nil {
		return nil, nil, err
	}
	if _, err := f.ReadAt(last, size-int64(len(last))); err != nil {
		return nil, nil, err
	}
	return first, last, nil
}

// blkid names what is on a device; empty: it finds nothing.
func (n *Server) blkid(path string) (string, error) {
	var complaints bytes.Buffer
	cmd := n.run.Command("blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", path)
	cmd.SetStderr(&complaints)
	out, err := cmd.Output()
	const nothing = 2 // exit status, see blkid(8)
	exit, failed := err.(exec.ExitError)
	switch {
	case failed && exit.ExitStatus() == nothing && len(out)+complaints.Len() == 0:
		return "", nil
	case err != nil:
		return "", fmt.Errorf("blkid %s: %w: %s%s", path, err, out, complaints.Bytes())
	}
	format := ""
	for line := range strings.Lines(string(out)) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
		case "TYPE":
			format = value
		case "PTTYPE":
			return formatPartitions, nil
		}
	}
	if format == "" {
		return "", fmt.Errorf("blkid %s: no type is in its answer %q", path, out)
	}
	return format, nil
}

// recognised names a format whose signature is in the first or last bytes of a device.
func recognised(first, last []byte) string {
	for _, s := range signatures {
		from, at := first, s.at
		if at < 0 {
			from, at = last, int64(len(last))+at
		}
		if at >= 0 && at+int64(len(s.magic)) <= int64(len(from)) && string(from[at:at+int64(len(s.magic))]) == s.magic {
			return s.format
		}
	}
	for _, part := range [][]byte{first, last} {
		for at := 0; at+zfsBlock <= len(part); at += zfsBlock {
			if m := string(part[at : at+len(zfsBig)]); m == zfsLittle || m == zfsBig {
				return "zfs"
			}
		}
	}
	return ""
}

// halfFormatted reports whether mkfs.xfs was cut short: the first sector says so until the last
// thing that it writes.
func halfFormatted(first []byte) bool {
	const inProgressAt = 126 // sb_inprogress
	return string(first[:4]) == "XFSB" && first[inProgressAt] != 0
}

func zero(p []byte) bool { return len(bytes.Trim(p, "\x00")) == 0 }

// mayFormat judges whether a device is one without content; nil: it is.
func (c content) mayFormat(d device, known string) error {
	switch {
	case c.raw:
		return status.Errorf(codes.FailedPrecondition, "the volume holds data that are no file system (%s does not begin "+
			"with zeros): nothing is changed. Clear its beginning by hand if it shall be formatted", d.shown())
	case known != "":
		return status.Errorf(codes.FailedPrecondition, "the volume has no file system that could be mounted, although %s: "+
			"nothing is changed. Look for what has become of its data; if none are missed, make a file system on %s by hand",
			known, d.shown())
	}
	return nil
}
