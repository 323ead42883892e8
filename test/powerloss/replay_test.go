package powerloss

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	witnessv1 "ankole.storage/api/rpc/witness/v1"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/daemon"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/dataplane/frontend/nbd/nbdclient"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/test/powerdisk"
)

// bed is a set of disks on which one state after the other is tried.
type bed struct {
	r      *recording
	number int
	disks  []*powerdisk.Disk
	replay *powerdisk.Replay
	ip     string
	port   int
	// again counts the states that were tried a second time, with whole blocks.
	again int
}

// trial is one state: the moment, and what survived on each disk.
type trial struct {
	at   int
	keep []powerdisk.Survival
	seed uint64
}

// String says how to see it again.
func (x trial) String() string {
	return fmt.Sprintf("power lost before event %d, of what was not flushed %v survives (seed %d)", x.at, x.keep, x.seed)
}

var beds struct {
	sync.Mutex
	made int
}

func newBed(t *testing.T, r *recording) *bed {
	t.Helper()
	beds.Lock()
	beds.made++
	b := &bed{r: r, number: beds.made, replay: powerdisk.NewReplay(r.events, r.disks)}
	beds.Unlock()
	// An address of its own, so that ports are free.
	pid := os.Getpid()
	b.ip = fmt.Sprintf("127.%d.%d.%d", 64+pid%128, pid/128%256, b.number%250+1)
	for i := range r.disks {
		d, err := run.Open(fmt.Sprintf("bed%d-%d", b.number, i), powerdisk.Options{Image: powerdisk.NewImage(diskSize(r.fs))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		b.disks = append(b.disks, d)
	}
	return b
}

// try makes a state, starts the volume on it and checks everything. Errors are violations.
//
// A file system that says that it is damaged itself has lost metadata of its own, which nothing of
// the volume writes: XFS does where a block of its metadata is torn. Such a state is made again
// with whole blocks, as disks that are made today would leave it, and must stand then.
func (b *bed) try(x trial) error {
	b.replay.Advance(x.at)
	err := b.tryState(x)
	if b.r.fs != "xfs" || !errors.Is(err, unix.EBADMSG) && !errors.Is(err, unix.EUCLEAN) {
		return err
	}
	b.again++
	if err := b.each(func(i int) error { return b.disks[i].Unmount() }); err != nil {
		return err
	}
	b.replay.WholeBlocks = true
	defer func() { b.replay.WholeBlocks = false }()
	return b.tryState(x)
}

func (b *bed) tryState(x trial) error {
	rng := rand.New(rand.NewPCG(x.seed, uint64(x.at)))
	dirs := make([]string, len(b.disks))
	for i, d := range b.disks {
		if err := d.Exchange(b.replay.State(i, x.keep[i], rng), nil); err != nil {
			return err
		}
	}
	if err := b.each(func(i int) error {
		at, err := b.disks[i].Mount(b.r.fs)
		dirs[i] = filepath.Join(at, fmt.Sprintf("vol-%08d", i))
		return err
	}); err != nil {
		return err
	}
	err := b.check(x.at, dirs)
	return errors.Join(err, b.each(func(i int) error { return b.disks[i].Unmount() }))
}

// name is the volume's name in this bed; sockets are called after it.
func (b *bed) name() string { return fmt.Sprintf("bed%d", b.number) }

func (b *bed) each(f func(i int) error) error {
	errs := make([]error, len(b.disks))
	var wg sync.WaitGroup
	for i := range b.disks {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// check starts the volume on the directories and compares what it shows, and then what is in them.
func (b *bed) check(at int, dirs []string) error {
	var log lockedBuffer
	content, serving, err := b.serve(at, dirs, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		return fmt.Errorf("%w\n%s", err, log.String())
	}
	if n := int64(len(content)); n != b.r.grown && (n != b.r.size || b.r.larger < at) ||
		n > b.r.size && at <= b.r.growing {
		return fmt.Errorf("the volume has %d bytes; it grew from %d to %d bytes between events %d and %d", n, b.r.size,
			b.r.grown, b.r.growing, b.r.larger)
	}
	if err := b.r.history.Check(at, content); err != nil {
		return err
	}
	if len(serving) == 0 {
		return errors.New("the volume serves without a replica")
	}
	return b.each(func(i int) error {
		if !slices.Contains(serving, filepath.Base(dirs[i])) {
			return nil
		}
		return b.checkDirectory(at, dirs[i], content, at%len(serving) == slices.Index(serving, filepath.Base(dirs[i])))
	})
}

// checkDirectory compares a replica that served with the volume's content. If asked to it also
// looks at the snapshots that were acknowledged, all for their presence and one for its content:
// hashing takes longer than all the rest.
func (b *bed) checkDirectory(at int, dir string, content []byte, snapshots bool) error {
	c, err := chain.Open(osdisk.New(nil), dir, chain.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer c.Close() // read only
	if c.Size() != int64(len(content)) {
		return fmt.Errorf("%s has %d bytes, the volume %d", filepath.Base(dir), c.Size(), len(content))
	}
	got := make([]byte, len(content))
	if _, err := c.ReadAt(got, 0); err != nil {
		return err
	}
	if !bytes.Equal(got, content) {
		return fmt.Errorf("%s differs from what the volume showed", filepath.Base(dir))
	}
	if !snapshots {
		return nil
	}
	have := map[string]bool{}
	for _, l := range c.LayerList() {
		have[l.File] = true
	}
	var there []*snapshot
	for _, s := range b.r.snapshots {
		if s.end >= at || s.removed < at {
			continue
		}
		if !have["volume-snap-"+s.name+".img"] {
			return fmt.Errorf("%s: snapshot %s, acknowledged at %d, is not in the chain", filepath.Base(dir), s.name, s.end)
		}
		there = append(there, s)
	}
	if len(there) == 0 {
		return nil
	}
	s := there[at/3%len(there)]
	sum, err := c.HashAt(s.name)
	if err == nil && sum != s.hash {
		err = fmt.Errorf("%s: snapshot %s, acknowledged at %d, has another content", filepath.Base(dir), s.name, s.end)
	}
	return err
}

// engineHost is where engines run: a successor on the same node knows that its predecessor is dead
// and does not wait for the end of its lease.
const engineHost = "node-a"

// startWait bounds each wait for a process inside this one, and its waits for replicas: a machine
// that stalls is no violation.
const startWait = 60 * time.Second

// serve runs replicas and an engine inside this process, as the programs would, reads the whole
// volume, and ends them in order. It returns the content and who served it.
func (b *bed) serve(at int, dirs []string, log *slog.Logger) (content []byte, serving []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*startWait)
	defer cancel()
	secret, err := hex.DecodeString(b.r.volume.Secret())
	if err != nil {
		return nil, nil, err
	}
	b.port = 10000 + (b.port+40)%20000
	var ends []func() error
	defer func() {
		for i := len(ends) - 1; i >= 0; i-- {
			err = errors.Join(err, ends[i]())
		}
	}()
	addr := func(k int) string { return net.JoinHostPort(b.ip, fmt.Sprint(b.port+2*k)) }
	var replicas []string
	for i, dir := range dirs {
		cfg := daemon.ReplicaConfig{Dir: dir, Listen: addr(i), VolumeName: b.name(), VolumeUUID: b.r.volume.UUID,
			Instance: "r", Secret: secret, Size: b.r.size, Log: log.With("replica", i)}
		p := spawn(func(ctx context.Context) error { return daemon.RunReplica(ctx, cfg) })
		ends = append(ends, p.end)
		replicas = append(replicas, addr(i))
		if err := p.await(ctx, func() bool { return listening(addr(i)) }); err != nil {
			return nil, nil, fmt.Errorf("replica %d: %w", i, err)
		}
	}
	cfg := daemon.EngineConfig{VolumeName: b.name(), VolumeUUID: b.r.volume.UUID, Instance: "after",
		InstanceManager: engineHost, Listen: addr(len(dirs)), Secret: secret,
		Size: b.r.size, Replicas: replicas, Frontend: daemon.FrontendBlockdev, Transport: daemon.TransportNBDUnix,
		ReplicaTimeout:   startWait,
		NoReplicaTimeout: startWait, Witness: &witness{record: b.r.witness(at)}, Log: log.With("engine", "after")}
	p := spawn(func(ctx context.Context) error { return daemon.RunEngine(ctx, cfg) })
	ends = append(ends, p.end)
	return b.read(ctx, p, cfg.Listen)
}

// read waits for the volume, reads it, and asks who serves it.
func (b *bed) read(ctx context.Context, p *inside, control string) ([]byte, []string, error) {
	conn, err := grpc.NewClient(control, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	var state *enginev1.State
	err = p.await(ctx, func() bool {
		state, err = enginev1.NewEngineClient(conn).Get(ctx, &enginev1.GetRequest{})
		return err == nil && state.FrontendState == "up"
	})
	if err != nil {
		return nil, nil, fmt.Errorf("engine: %w", err)
	}
	c, err := nbdclient.Dial(ctx, "unix:"+filepath.Join(run.Dir(), "s", b.name()+".nbd"),
		nbdclient.Options{Export: b.name()})
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	content := make([]byte, c.Size())
	if _, err := c.ReadAt(content, 0); err != nil {
		return nil, nil, err
	}
	var serving []string
	for _, x := range state.Replicas {
		if x.Mode == enginev1.Mode_MODE_RW {
			serving = append(serving, x.Member)
		}
	}
	return content, serving, nil
}

// inside is a program that runs as a goroutine.
type inside struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func spawn(program func(context.Context) error) *inside {
	ctx, cancel := context.WithCancel(context.Background())
	p := &inside{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = program(ctx)
	}()
	return p
}

// end asks it to end and returns how it did.
func (p *inside) end() error {
	p.cancel()
	<-p.done
	return p.err
}

// await waits for a condition that holds while the program runs.
func (p *inside) await(ctx context.Context, cond func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-p.done:
			return fmt.Errorf("ended by itself: %w", p.err)
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

func listening(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// witness returns the record that the witness held at a moment.
func (r *recording) witness(at int) quorum.WitnessRecord {
	var m *witnessv1.Membership
	for i := at - 1; i >= 0 && m == nil; i-- {
		if s, ok := r.events[i].Note.(swap); ok {
			m = s.record
		}
	}
	if m == nil {
		return quorum.WitnessRecord{}
	}
	return quorum.WitnessRecord{Epoch: uint64(m.Epoch), Engine: m.Engine, InstanceManager: m.InstanceManager,
		Stored: m.Stored,
		Record: quorum.Record{Epoch: uint64(m.RecordEpoch), Generation: uint64(m.Generation), Members: m.Members}}
}

// witness is an engine.Witness in memory.
type witness struct {
	mu     sync.Mutex
	record quorum.WitnessRecord
}

// Read implements engine.Witness.
func (w *witness) Read() (quorum.WitnessRecord, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.record, nil
}

// Swap implements engine.Witness.
func (w *witness) Swap(expected, next quorum.WitnessRecord) (quorum.WitnessRecord, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	same := expected.Epoch == w.record.Epoch && expected.Record.Epoch == w.record.Record.Epoch &&
		expected.Record.Generation == w.record.Record.Generation
	if same {
		w.record = next
	}
	return w.record, same, nil
}

// lockedBuffer collects logs of several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
