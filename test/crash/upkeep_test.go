package crash

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/frontend/nbd/nbdclient"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
)

// TestUpkeep measures what scrubs and purges cost those who use the volume meanwhile: UPKEEP is the
// volume's size in MiB, TMPDIR says on which file system. Every second block is written, in two
// snapshots and the head, so that files have as many extents as they can. docs/design/engine.md has
// figures.
func TestUpkeep(t *testing.T) {
	size, err := strconv.ParseInt(os.Getenv("UPKEEP"), 10, 32)
	if err != nil {
		lack.Later(t, "measures for minutes; UPKEEP=2048 runs it on a volume of 2 GiB, which takes 4 GiB of disk")
	}
	ctx := context.Background()
	v := rig.New(t, 1, size*mib)
	v.StartEngine()
	c := v.Dial()
	snapshot := func(name string) {
		if _, err := v.Control().SnapshotCreate(ctx,
			&enginev1.SnapshotCreateRequest{Name: name, UserCreated: true}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		everySecondBlock(t, c, size*mib, byte(len(name)))
		snapshot(name)
	}
	purge := func() {
		if _, err := v.Control().SnapshotPurge(ctx, &enginev1.SnapshotPurgeRequest{}); err != nil {
			t.Fatal(err)
		}
		v.Await("end of the purge", func(s *enginev1.State) bool { return !s.Replicas[0].GetPurge().GetRunning() })
	}
	remove := func(name string) {
		if _, err := v.Control().SnapshotRemove(ctx, &enginev1.SnapshotRemoveRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	measure(t, c, "nothing", size*mib, func() { <-time.After(5 * time.Second) }) // for comparison
	measure(t, c, "scrub", size*mib, func() { scrub(t, v) })
	remove("a")
	measure(t, c, "purge that merges", size*mib, purge)
	everySecondBlock(t, c, size*mib, 9)
	remove("b")
	measure(t, c, "purge that prunes", size*mib, purge)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func everySecondBlock(t *testing.T, c *nbdclient.Client, size int64, v byte) {
	t.Helper()
	const writers = 16
	var all sync.WaitGroup
	for w := range int64(writers) {
		all.Go(func() {
			p := slices.Repeat([]byte{v}, 4096)
			for off := w * 8192; off < size; off += writers * 8192 {
				if _, err := c.WriteAt(p, off); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := c.Flush(); err != nil || t.Failed() {
		t.Fatal(err)
	}
}

// measure prints how long requests take while something goes on: writes with a flush, in one
// region, and writes each of which needs a new mark in the dirty log.
func measure(t *testing.T, c *nbdclient.Client, what string, size int64, something func()) {
	t.Helper()
	done := make(chan struct{})
	var all sync.WaitGroup
	times := map[string][]time.Duration{}
	var mu sync.Mutex
	repeat := func(name string, f func() error) {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				begin := time.Now()
				err := f()
				mu.Lock()
				times[name] = append(times[name], time.Since(begin))
				mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	p, region := make([]byte, 4096), int64(1)
	repeat("write and flush", func() error {
		if _, err := c.WriteAt(p, rand.Int64N(1024)*4096); err != nil {
			return err
		}
		return c.Flush()
	})
	q := make([]byte, 4096)
	repeat("write and mark", func() error {
		region = region%(size/(4*mib)-1) + 1
		_, err := c.WriteAt(q, region*4*mib)
		return err
	})
	begin := time.Now()
	something()
	took := time.Since(begin)
	close(done)
	all.Wait()
	for _, name := range []string{"write and flush", "write and mark"} {
		l := times[name]
		slices.Sort(l)
		t.Logf("%-20s %6.1fs %-16s %6d times, median %8v, 99%% %8v, longest %8v", what, took.Seconds(), name, len(l),
			l[len(l)/2].Round(10*time.Microsecond), l[len(l)*99/100].Round(10*time.Microsecond),
			l[len(l)-1].Round(10*time.Microsecond))
	}
}
