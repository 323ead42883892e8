package crash

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/rig"
	"ankole.storage/test/seeded"
)

// TestRotInASnapshot flips bits in one replica's snapshot while the volume is in use. The scrub
// finds them, says where they were, and puts them right from the other replica; no time stamp is
// looked at for it, as a disk that rots changes none.
func TestRotInASnapshot(t *testing.T) {
	t.Parallel()
	v := rig.New(t, 2, 64*mib)
	v.StartEngine()
	c := v.Dial()
	src := seeded.New(t, "P6: a scrub repairs a snapshot's copy that contradicts its checksum")
	src.Seed(3)
	r := src.Rand(4)
	write := func(off int64, n int) {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(r.Uint32())
		}
		if _, err := c.WriteAt(p, off); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	for i, name := range []string{"old", "new"} {
		for k := range 16 {
			write(int64(k)*2*mib+int64(i)*mib/2, mib)
		}
		if _, err := v.Control().SnapshotCreate(ctx,
			&enginev1.SnapshotCreateRequest{Name: name, UserCreated: true}); err != nil {
			t.Fatal(err)
		}
	}
	write(0, 65536)
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	if s := scrub(t, v); s.State != "complete" || s.SnapshotsDone != 2 || s.Repaired+s.Unrepaired != 0 {
		t.Fatalf("%v", s)
	}
	want, err := rig.Content(v.Replicas[0].Dir)
	if err != nil {
		t.Fatal(err)
	}

	bad := v.Replicas[1]
	places := map[string]int64{"old": 5*2*mib + 12345, "new": 7*2*mib + mib/2 + 54321}
	for name, off := range places {
		flip(t, filepath.Join(bad.Dir, "volume-snap-"+name+".img"), off)
	}
	if got, err := rig.Content(bad.Dir); err != nil || reflect.DeepEqual(got, want) {
		t.Fatalf("the damage cannot be seen: %v", err)
	}
	s := scrub(t, v)
	if s.State != "complete" || s.Unrepaired != 0 || s.Repaired < 2 {
		t.Fatalf("%v", s)
	}
	for name, off := range places {
		says := fmt.Sprintf("wrong in [%d,+262144) of the file of %s", off/262144*262144, name)
		if text := fmt.Sprint(s.Findings); !strings.Contains(text, says) || !strings.Contains(text, "tcp://"+bad.Addr) {
			t.Errorf("findings do not say %q of %s: %s", says, bad.Addr, text)
		}
	}
	for _, x := range v.Replicas {
		got, err := rig.Content(x.Dir)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: content is not what it was (%v)", x.Name, err)
		}
	}
	if s := scrub(t, v); s.Repaired+s.Unrepaired != 0 {
		t.Fatalf("after the repair: %v", s)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// scrub scrubs all snapshots and returns what was found.
func scrub(t *testing.T, v *rig.Volume) *enginev1.Scrub {
	t.Helper()
	if _, err := v.Control().ScrubStart(context.Background(),
		&enginev1.ScrubStartRequest{Mode: "enabled", BytesPerSecond: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	v.Await("end of the scrub", func(s *enginev1.State) bool { return s.Scrub != nil && !s.Scrub.Running })
	s, err := v.State()
	if err != nil {
		t.Fatal(err)
	}
	return s.Scrub
}

// flip inverts a few bytes of a file.
func flip(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := make([]byte, 3)
	if _, err = f.ReadAt(p, off); err == nil {
		for i := range p {
			p[i] = ^p[i]
		}
		if _, err = f.WriteAt(p, off); err == nil {
			err = f.Sync()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
