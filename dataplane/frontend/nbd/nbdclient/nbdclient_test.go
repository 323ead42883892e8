package nbdclient_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/frontend/frontendtest"
	"ankole.storage/dataplane/frontend/nbd"
	"ankole.storage/dataplane/frontend/nbd/nbdclient"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
)

// server is an NBD server on a device in memory.
type server struct {
	path string
}

func (s *server) Frontend(t *testing.T, env frontendtest.Env) frontend.Frontend {
	h, _, err := posix.Listen("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := nbd.New(nbd.Config{Owner: env.Owner, Arena: env.Arena, Listener: h, Export: env.Name, Size: env.Size})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (s *server) Open(*testing.T) frontendtest.Client { return nil }
func (s *server) Down(*testing.T)                     {}
func (s *server) Caps() frontendtest.Caps             { return frontendtest.Caps{} }

func up(t *testing.T, size int64, tell func(v *frontendtest.Device)) (*frontendtest.Rig, string) {
	s := &server{path: filepath.Join(t.TempDir(), "s")}
	return frontendtest.Up(t, s, size, tell), "unix:" + s.path
}

func TestDialSaysWhatIsWrong(t *testing.T) {
	_, addr := up(t, 1<<20, nil)
	if _, err := nbdclient.Dial(t.Context(), addr, nbdclient.Options{Export: "other"}); !errors.Is(err,
		nbdclient.ErrRefused) {
		t.Errorf("an unknown export gave %v", err)
	}
	for _, a := range []string{"", "vol", "http://x", "unix:/nowhere/at/all"} {
		if _, err := nbdclient.Dial(t.Context(), a, nbdclient.Options{}); err == nil {
			t.Errorf("%q was dialled", a)
		}
	}
	c, err := nbdclient.Dial(t.Context(), addr, nbdclient.Options{Export: "vol"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if e := c.Export(); e.Size != 1<<20 || e.MinBlock != 512 || e.PreferredBlock != 4096 || e.MaxRequest != 32<<20 {
		t.Errorf("export %+v", e)
	}
}

func TestALoadDoesWhatItSays(t *testing.T) {
	for name, c := range map[string]struct {
		load  nbdclient.Load
		check func(seen map[block.Kind]int) bool
	}{
		"reads": {nbdclient.Load{Depth: 16, ReadPercent: 100, Requests: 500}, func(s map[block.Kind]int) bool {
			return s[block.Read] == 500 && s[block.Write] == 0
		}},
		"writes": {nbdclient.Load{Depth: 64, Requests: 500}, func(s map[block.Kind]int) bool {
			return s[block.Write] == 500 && s[block.Read] == 0
		}},
		"a mixture": {nbdclient.Load{Depth: 8, ReadPercent: 50, Requests: 500}, func(s map[block.Kind]int) bool {
			return s[block.Write] > 100 && s[block.Read] > 100
		}},
		"flushes": {nbdclient.Load{FlushEvery: 1, Requests: 50}, func(s map[block.Kind]int) bool {
			return s[block.Write] == 50 && s[block.Flush] == 50
		}},
		"large mixture": {nbdclient.Load{Depth: 32, ReadPercent: 50, BlockSize: 4 << 20, Requests: 100},
			func(s map[block.Kind]int) bool {
				return s[block.Write]+s[block.Read] == 400
			}},
	} {
		t.Run(name, func(t *testing.T) {
			r, addr := up(t, 16<<20, nil)
			c.load.Addr = addr
			res, err := c.load.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if res.Requests != c.load.Requests || res.Latency.Count() != c.load.Requests || res.Errors != 0 {
				t.Errorf("%d requests, %d latencies, %d errors", res.Requests, res.Latency.Count(), res.Errors)
			}
			r.Do(func(v *frontendtest.Device, _ *[]loop.Op) {
				if !c.check(v.Seen) {
					t.Errorf("the device saw %v", v.Seen)
				}
			})
		})
	}
}

func TestASequentialLoadCoversItsSpanOnce(t *testing.T) {
	r, addr := up(t, 1<<20, nil)
	res, err := nbdclient.Load{Addr: addr, Sequential: true, Start: 4096, Span: 64 << 10, Requests: 16,
		Depth: 4}.Run(t.Context())
	if err != nil || res.Requests != 16 {
		t.Fatal(res, err)
	}
	r.Do(func(v *frontendtest.Device, _ *[]loop.Op) {
		for b := range 256 {
			written := !bytes.Equal(v.Mem[b*4096:(b+1)*4096], make([]byte, 4096))
			if want := b >= 1 && b < 17; written != want {
				t.Errorf("block %d written: %v", b, written)
			}
		}
	})
}

func TestALoadCountsErrorsAndEndsWithItsContext(t *testing.T) {
	_, addr := up(t, 1<<20, func(v *frontendtest.Device) {
		v.Fail = func(*frontend.Request) block.Code { return block.IOError }
	})
	res, err := nbdclient.Load{Addr: addr, ReadPercent: 100, Requests: 10}.Run(t.Context())
	if err != nil || res.Errors != 10 {
		t.Fatalf("%+v, %v", res, err)
	}
	r, addr := up(t, 1<<20, func(v *frontendtest.Device) { v.Hold = 1 << 30 })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := nbdclient.Load{Addr: addr, Depth: 4, Requests: 100}.Run(ctx)
		ended <- err
	}()
	r.Until("requests under way", func(v *frontendtest.Device) bool { return v.Deepest == 4 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled load ended with %v", err)
	}
	r.Do(func(v *frontendtest.Device, _ *[]loop.Op) { v.Hold = 0 })
}

func TestLoadsThatMakeNoSense(t *testing.T) {
	for name, l := range map[string]nbdclient.Load{
		"endless":         {},
		"depth":           {Depth: 5000, Requests: 1},
		"block size":      {BlockSize: 1000, Requests: 1},
		"flush and depth": {Depth: 4, FlushEvery: 1, Requests: 1},
		"percent":         {ReadPercent: 101, Requests: 1},
		"memory":          {Depth: 1000, BlockSize: 32 << 20, Requests: 1},
	} {
		if _, err := l.Run(t.Context()); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestReconnectRepeatsWhatWasLost(t *testing.T) {
	_, addr := up(t, 8<<20, nil)
	cut := newCutter(t, addr)
	c, err := nbdclient.Dial(t.Context(), cut.addr, nbdclient.Options{Reconnect: frontendtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var wg sync.WaitGroup
	var done atomic.Int64
	for w := range 4 {
		wg.Go(func() {
			for i := range 50 {
				off := int64(w<<20 + i*4096)
				p := bytes.Repeat([]byte{byte(1 + w + i)}, 4096)
				if _, err := c.WriteAt(p, off); err != nil {
					t.Errorf("write: %v", err)
					return
				}
				if done.Add(1)%40 == 0 {
					cut.cut()
				}
				q := make([]byte, 4096)
				if _, err := c.ReadAt(q, off); err != nil || !bytes.Equal(p, q) {
					t.Errorf("read back: %v, equal %v", err, bytes.Equal(p, q))
					return
				}
			}
		})
	}
	wg.Wait()
	if cut.connections() < 3 {
		t.Errorf("only %d connections: nothing was cut", cut.connections())
	}
}

func TestWithoutReconnectALossIsReported(t *testing.T) {
	_, addr := up(t, 1<<20, nil)
	cut := newCutter(t, addr)
	c, err := nbdclient.Dial(t.Context(), cut.addr, nbdclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cut.cut()
	var errno syscall.Errno
	if err := c.Flush(); err == nil || errors.As(err, &errno) && errno == syscall.EIO {
		t.Errorf("a flush on a lost connection gave %v", err)
	}
}

// cutter is a proxy whose connections can be cut.
type cutter struct {
	addr string
	mu   sync.Mutex
	open []net.Conn
	n    int
}

func newCutter(t *testing.T, to string) *cutter {
	path := filepath.Join(t.TempDir(), "p")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{addr: "unix:" + path}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.DialTimeout("unix", to[len("unix:"):], time.Second)
			if err != nil {
				a.Close()
				continue
			}
			c.mu.Lock()
			c.open = append(c.open, a, b)
			c.n++
			c.mu.Unlock()
			wg.Go(func() { pipe(a, b) })
			wg.Go(func() { pipe(b, a) })
		}
	})
	t.Cleanup(func() { l.Close(); c.cut(); wg.Wait() })
	return c
}

func pipe(from, to net.Conn) {
	p := make([]byte, 4096)
	for {
		n, err := from.Read(p)
		if err == nil {
			_, err = to.Write(p[:n])
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.open {
		x.Close()
	}
	c.open = nil
}

func (c *cutter) connections() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func TestHistogram(t *testing.T) {
	var h nbdclient.Histogram
	if h.Quantile(0.5) != 0 || h.Mean() != 0 {
		t.Error("an empty histogram is not zero")
	}
	for i := 1; i <= 10000; i++ {
		h.Add(time.Duration(i) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 5000 * time.Microsecond, 0.99: 9900 * time.Microsecond,
		0.01: 100 * time.Microsecond} {
		if got := h.Quantile(q); got > want || got < want*7/8 {
			t.Errorf("quantile %v is %v, want about %v", q, got, want)
		}
	}
	if h.Max() != 10*time.Millisecond || h.Count() != 10000 || h.Mean() != 5000500*time.Nanosecond {
		t.Errorf("max %v, count %d, mean %v", h.Max(), h.Count(), h.Mean())
	}
	h.Add(1 << 62)
	h.Add(-1)
	if h.Quantile(1) == 0 {
		t.Error("the largest duration was lost")
	}
}
