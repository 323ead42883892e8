package crash

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/bench/nbdclient"
	"ankole.storage/dataplane/chain"
	"ankole.storage/disk/osdisk"
	"ankole.storage/test/rig"
)

// writer writes blocks that carry their own number and version, and remembers which version of each was written, and
// which was covered by a flush that succeeded.
type writer struct {
	c      *nbdclient.Client
	blocks int
	rng    *rand.Rand

	mu      sync.Mutex
	written []uint64 // last version acknowledged, or sent and failed
	stable  []uint64 // last version acknowledged before a flush began that succeeded
	flushes int
	ops     int
}

const blockSize = 4096

func newWriter(c *nbdclient.Client, size int64, seed uint64) *writer {
	n := int(size / blockSize)
	return &writer{c: c, blocks: n, rng: rand.New(rand.NewPCG(seed, 1)), written: make([]uint64, n), stable: make([]uint64, n)}
}

// fill makes the content of a block's version.
func fill(p []byte, block int, version uint64) {
	binary.LittleEndian.PutUint64(p[0:], uint64(block))
	binary.LittleEndian.PutUint64(p[8:], version)
	s := sha256.Sum256(p[:16])
	for i := 16; i < len(p); i += len(s) {
		copy(p[i:], s[:])
	}
}

// versionOf reads a block back: 0 for a block of zeroes, an error for anything no writer ever wrote.
func versionOf(p []byte, block int) (uint64, error) {
	if bytes.Count(p, []byte{0}) == len(p) {
		return 0, nil
	}
	version := binary.LittleEndian.Uint64(p[8:])
	want := make([]byte, len(p))
	fill(want, block, version)
	if !bytes.Equal(p, want) {
		return 0, fmt.Errorf("block %d holds something that was never written whole", block)
	}
	return version, nil
}

// step writes one to eight neighbouring blocks, and flushes now and then. It returns the first error.
func (w *writer) step(version uint64) error {
	n := 1 + w.rng.IntN(8)
	first := w.rng.IntN(w.blocks - n)
	p := make([]byte, n*blockSize)
	for i := range n {
		fill(p[i*blockSize:(i+1)*blockSize], first+i, version)
	}
	w.mu.Lock()
	for i := range n {
		w.written[first+i] = version
	}
	w.mu.Unlock()
	if _, err := w.c.WriteAt(p, int64(first)*blockSize); err != nil {
		return err
	}
	w.mu.Lock()
	w.ops++
	w.mu.Unlock()
	if w.rng.IntN(16) != 0 {
		return nil
	}
	w.mu.Lock()
	before := append([]uint64(nil), w.written...)
	w.mu.Unlock()
	if err := w.c.Flush(); err != nil {
		return err
	}
	w.mu.Lock()
	w.stable = before
	w.flushes++
	w.mu.Unlock()
	return nil
}

// verify reads everything through c and checks that no flushed version is lost and nothing was made up.
func (w *writer) verify(t *testing.T, c *nbdclient.Client) {
	t.Helper()
	p := make([]byte, mib)
	for off := 0; off < w.blocks*blockSize; off += mib {
		if _, err := c.ReadAt(p, int64(off)); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < mib; i += blockSize {
			b := (off + i) / blockSize
			v, err := versionOf(p[i:i+blockSize], b)
			switch {
			case err != nil:
				t.Fatal(err)
			case v < w.stable[b]:
				t.Fatalf("block %d: version %d was flushed, found %d", b, w.stable[b], v)
			case v > w.written[b]:
				t.Fatalf("block %d: found version %d, never wrote more than %d", b, v, w.written[b])
			}
			// What is read now is what the next round builds on.
			w.written[b], w.stable[b] = max(v, w.stable[b]), v
		}
	}
}

// identical compares the content of the replica directories, which must be closed.
func identical(t *testing.T, v *rig.Volume, replicas ...*rig.Replica) {
	t.Helper()
	var first [32]byte
	for i, r := range replicas {
		c, err := chain.Open(osdisk.New(func(p string) string { return p }), r.Dir, chain.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		sum, err := c.HashAt(chain.HeadName)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = sum
		} else if sum != first {
			t.Fatalf("replica %s differs from %s", r.Name, replicas[0].Name)
		}
	}
}

// TestReplicaLost kills one replica under I/O: no error, no data lost; then it is rebuilt under I/O, and in the end all
// are identical.
func TestReplicaLost(t *testing.T) {
	t.Parallel()
	v := rig.New(t, 3, 64*mib)
	v.StartEngine()
	w := newWriter(v.Dial(), v.Size, 7)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for version := uint64(1); ; version++ {
			select {
			case <-stop:
				done <- w.c.Flush()
				return
			default:
			}
			if err := w.step(version); err != nil {
				done <- err
				return
			}
		}
	}()
	awaitOps(t, w, 2000)
	victim := v.Replicas[1]
	victim.Kill()
	v.Await("degraded", func(s *enginev1.State) bool { return rig.Modes(s)[enginev1.Mode_MODE_RW] == 2 })
	awaitOps(t, w, 4000)
	victim.Start()
	v.Rebuild(victim)
	awaitOps(t, w, 6000)
	close(stop)
	if err := <-done; err != nil {
		t.Fatalf("the writer saw an error: %v", err)
	}
	w.verify(t, v.Dial())
	v.StopEngine()
	for _, r := range v.Replicas {
		r.Stop()
	}
	identical(t, v, v.Replicas...)
}

// awaitOps waits until the writer has done n operations.
func awaitOps(t *testing.T, w *writer, n int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		w.mu.Lock()
		ops := w.ops
		w.mu.Unlock()
		if ops >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("writer is stuck at %d of %d operations", ops, n)
		}
		<-tick.C
	}
}

// TestKillEverything kills engine and replicas at a random moment under a writer that flushes, again and again: every
// flushed write is there, nothing is made up, and the replicas are identical afterwards.
func TestKillEverything(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	v := rig.New(t, 3, 32*mib)
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 99))
	var w *writer
	version := uint64(0)
	ops, rebuilt := 0, 0
	for range rounds {
		v.StartEngine()
		c := v.Dial()
		if w == nil {
			w = newWriter(c, v.Size, rng.Uint64())
		}
		w.c = c
		w.verify(t, c)
		rebuilt += rebuildMissing(t, v)
		var err error
		w.ops = 0
		kill := time.AfterFunc(time.Duration(20+rng.IntN(250))*time.Millisecond, v.KillAll)
		for err == nil {
			version++
			err = w.step(version)
		}
		kill.Stop()
		v.KillAll()
		ops += w.ops
		for _, r := range v.Replicas {
			r.Start()
		}
	}
	v.StartEngine()
	w.verify(t, v.Dial())
	rebuilt += rebuildMissing(t, v)
	v.StopEngine()
	for _, r := range v.Replicas {
		r.Stop()
	}
	identical(t, v, v.Replicas...)
	t.Logf("%d rounds, %d writes, %d flushes, %d rebuilds", rounds, ops, w.flushes, rebuilt)
}

// rebuildMissing brings back the replicas that the engine dropped because they died a moment before it did.
func rebuildMissing(t *testing.T, v *rig.Volume) int {
	t.Helper()
	s, err := v.State()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, x := range s.Replicas {
		if x.Mode == enginev1.Mode_MODE_RW {
			continue
		}
		for _, r := range v.Replicas {
			if "tcp://"+r.Addr == x.Address {
				v.Rebuild(r)
				n++
			}
		}
	}
	return n
}
