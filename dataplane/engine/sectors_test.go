package engine_test

import (
	"bytes"
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// headImage is the file of replica i's head.
func (g *scrubRig) headImage(i int) string {
	g.t.Helper()
	dir := "/replicas/" + g.v.Replicas[i].Name
	names, err := g.disk(i).List(dir)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasPrefix(n, "volume-head-") && strings.HasSuffix(n, ".img") {
			return dir + "/" + n
		}
	}
	g.t.Fatal("no head")
	return ""
}

func (g *scrubRig) seen(event string) int {
	n := 0
	for _, e := range g.events {
		if strings.HasPrefix(e, event) {
			n++
		}
	}
	return n
}

// A sector that one disk cannot read costs nobody anything: the other replica answers, and the
// sector is written again, whether it is in the head or in a snapshot.
func TestUnreadableSectorIsWrittenAgain(t *testing.T) {
	for name, image := range map[string]func(g *scrubRig) (string, int64){
		"head":     func(g *scrubRig) (string, int64) { return g.headImage(1), 4096 },
		"snapshot": func(g *scrubRig) (string, int64) { return g.image(1, "b"), 65536 },
	} {
		t.Run(name, func(t *testing.T) {
			g := newScrubRig(t, 2)
			want, code := g.read(0, 1<<20)
			if code != block.OK {
				t.Fatal(code)
			}
			file, off := image(g)
			g.damage(g.disk(1).Unreadable(file, off, 4096))
			for range 4 { // replicas are read by turns
				got, code := g.read(512, 1<<18)
				if code != block.OK || !bytes.Equal(got.data, want.data[512:512+1<<18]) {
					t.Fatalf("read: %s", code)
				}
			}
			g.until("sector written again", func() bool { return g.seen("rewritten r1") == 1 })
			g.expectModes("r0=RW r1=RW")
			p, err := g.disk(1).ReadFile(g.headImage(1), scrubSize)
			if err != nil || !bytes.Equal(p[off:off+4096], want.data[off:off+4096]) {
				t.Fatalf("the head has other bytes there (%v)", err)
			}
			for range 4 {
				if _, code := g.read(0, 1<<18); code != block.OK {
					t.Fatal(code)
				}
			}
			if n := g.seen("rewritten"); n != 1 {
				t.Errorf("written again %d times", n)
			}
		})
	}
}

// A disk that can neither read nor write is given up.
func TestDiskThatCannotWriteIsDropped(t *testing.T) {
	g := newScrubRig(t, 2)
	g.damage(g.disk(1).Unreadable(g.headImage(1), 4096, 4096))
	g.disk(1).Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: "volume-head-*.img", Err: disk.ErrIO})
	for range 2 {
		if _, code := g.read(0, 65536); code != block.OK {
			t.Fatal(code)
		}
	}
	g.until("replica dropped", func() bool { return strings.Contains(g.modes(), "r1=ERR") })
	if _, code := g.read(0, 65536); code != block.OK {
		t.Fatal(code)
	}
}

// A disk on which ever more sectors go bad is given up as well.
func TestDiskThatKeepsFailingIsDropped(t *testing.T) {
	g := newScrubRig(t, 2)
	for i := int64(0); !strings.Contains(g.modes(), "r1=ERR"); i++ {
		if i == 200 {
			t.Fatal("still not dropped")
		}
		off := i * 4096
		g.damage(g.disk(1).Unreadable(g.image(1, "a"), off, 4096))
		for range 2 {
			if _, code := g.read(off, 4096); code != block.OK {
				t.Fatal(code)
			}
		}
	}
}
