package node

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"k8s.io/utils/exec"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
)

// sum is what the backing file of the volume has, up to a size.
func (b *bed) sum(sizeBytes string) string {
	b.Helper()
	return b.command("sh", "-c", "sync "+b.loop+"; head -c "+sizeBytes+" "+b.file+" | sha256sum")
}

// blind is a blkid that finds nothing, as it does when it cannot read.
type blind struct{ exec.Interface }

func (e blind) Command(name string, args ...string) exec.Cmd {
	if name == "blkid" {
		return e.Interface.Command("sh", "-c", "exit 2")
	}
	return e.Interface.Command(name, args...)
}

// TestNoFormatAfterReadError: where something cannot be read, nothing is formatted, although blkid
// finds nothing: that is what it says when it could not look.
func TestNoFormatAfterReadError(t *testing.T) {
	for _, k := range kinds[:2] {
		for name, damage := range map[string]func(b *bed){
			"the end cannot be read": func(b *bed) { b.must(os.Truncate(b.file, k.size-64<<10)) },
			"blkid cannot read":      func(b *bed) { b.run = blind{b.run} },
		} {
			t.Run(k.name+", "+name, func(t *testing.T) {
				t.Parallel()
				b := newBed(t, k.size)
				c := csitest.Capability(k.fs, csitest.Once)
				b.must(b.stage(c), b.publish(1, c, false))
				b.write(1, "kept")
				b.must(b.unpublish(1), b.unstage())
				before := b.sum("32M")
				damage(b)
				csitest.Wants(t, b.stage(c), codes.Internal)
				if b.sum("32M") != before {
					t.Error("the volume was changed")
				}
				b.must(os.Truncate(b.file, k.size))
				b.restart()
				b.must(b.stage(c), b.publish(1, c, false))
				if got := b.read(1); got != "kept" {
					t.Errorf("read %q", got)
				}
			})
		}
	}
}

// put writes to the device at an offset; a negative one counts from the end.
func (b *bed) put(at int64, text string) {
	b.Helper()
	f, err := os.OpenFile(b.loop, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if at < 0 {
		size, err := f.Seek(0, 2)
		b.must(err)
		at += size
	}
	_, err = f.WriteAt([]byte(text), at)
	b.must(err, f.Sync())
}

// TestNoFormatOverContent: data that are no file system, signatures that blkid passes over, and
// volumes that are known to have content are left alone.
func TestNoFormatOverContent(t *testing.T) {
	t.Parallel()
	b := newBed(t, 16*mib)
	c := csitest.Capability("ext4", csitest.Once)
	refused := func(what string, code codes.Code) {
		t.Helper()
		before := b.sum("16M")
		err := b.stage(c)
		csitest.Wants(t, err, code)
		if b.sum("16M") != before {
			t.Errorf("%s: the volume was changed", what)
		}
	}
	b.put(0, "a data base of its own")
	refused("raw data", codes.FailedPrecondition)
	b.put(0, strings.Repeat("\x00", headBytes))
	b.given = map[string]string{request.ContextContent: "Pod app/web-0 has run with it"}
	err := b.stage(c)
	csitest.Says(t, err, "Pod app/web-0")
	refused("known content", codes.FailedPrecondition)
	b.given = nil
	b.run = blind{b.run}
	zfs := []signature{{"zfs", 128<<10 + 5<<10, zfsLittle}, {"zfs", -64 << 10, zfsBig}}
	for _, s := range append(zfs, signatures...) {
		b.put(s.at, s.magic)
		refused(s.format, codes.Internal)
		csitest.Says(t, b.stage(c), "if nothing on it is missed, make the file system there")
		b.put(s.at, strings.Repeat("\x00", len(s.magic)))
	}
	b.must(b.stage(c)) // nothing of it is left
}
