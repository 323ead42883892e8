package daemon

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
)

// This file is a process that offers a volume on a node where its engine is not, while the volume
// migrates to that node: every request goes to the engine. It talks to no replica and takes no
// epoch. With its connection to the engine it ends, and leaves its block device to the next process
// of the volume; docs/design/migration.md.

// greetingTime bounds how long a stand-in waits for the engine to serve the volume.
const greetingTime = 30 * time.Second

// Errors of a stand-in.
var (
	errStandIn = fmt.Errorf("%w: this process stands in for the volume's engine on another node; ask that one",
		engine.ErrState)
	errEngineLost = errors.New("stand-in: the connection to the volume's engine has ended")
)

// beginStandIn connects to the engine and begins the life of a stand-in, at the address to which
// the engine refers it: on the storage network, if the volume has one. The end of ctx ends that,
// but not a life that has begun.
func (p *engineProcess) beginStandIn(ctx context.Context) error {
	data, err := p.standInAt(ctx, p.cfg.StandInFor, managementNetwork)
	if err != nil || data == "" {
		return err
	}
	again, err := p.standInAt(ctx, data, p.cfg.Network)
	if err == nil && again != "" {
		err = fmt.Errorf("stand-in: the engine at %s refers to %s, and that one to %s", p.cfg.StandInFor, data, again)
	}
	return err
}

// standInAt begins the life of a stand-in with the engine at an address, unless that one refers it
// to another address.
func (p *engineProcess) standInAt(told context.Context, address, network string) (referred string, err error) {
	p.cfg.Log.Info("stand-in is starting", "volume", p.cfg.VolumeName, "engine", address, "network", network)
	// A cut that nobody tells of ends the connection on both sides, and users' requests with it. An
	// instance manager of an older version gives its engines no certificates; the proof is asked for
	// in any case.
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(p.cfg.Certificates.DialAnyInstance))
	if err != nil {
		return "", fmt.Errorf("stand-in: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(told))
	begun := context.AfterFunc(told, cancel)
	v, referred, err := p.greetedStandIn(ctx, cancel, address, enginev1.NewEngineClient(conn))
	begun()
	if err != nil || referred != "" {
		cancel()
		return referred, errors.Join(err, conn.Close())
	}
	context.AfterFunc(v.ctx, func() { // it cannot go on, or has ended
		cancel()
		_ = conn.Close() // of no use any more
	})
	return "", nil
}

// greetedStandIn is greeted by the engine, takes over the device of a stand-in before it, and
// starts the core; or is referred to another address. cancel ends the stream.
func (p *engineProcess) greetedStandIn(ctx context.Context, cancel context.CancelFunc, address string,
	c enginev1.EngineClient) (v *life, referred string, err error) {
	late := time.AfterFunc(greetingTime, cancel)
	defer late.Stop()
	ctx = metadata.AppendToOutgoingContext(ctx, "volume-name", p.cfg.VolumeName)
	stream, err := c.StandIn(ctx, grpc.WaitForReady(true)) // it may be about to listen
	var greeting *enginev1.StandInAnswer
	if err == nil {
		greeting, err = p.askToStandIn(stream, address)
	}
	if err != nil {
		return nil, "", fmt.Errorf("stand-in: the engine at %s does not answer as it should: %w", address, err)
	}
	if greeting.DataAddress != "" {
		return nil, greeting.DataAddress, nil
	}
	if p.cfg.Keeper != "" {
		// The engine may have been started anew since, more than once: it goes on where its predecessors
		// were.
		follows := append(greeting.Epochs, uint64(greeting.Epoch), uint64(greeting.Follows))
		if _, err := p.takeKept(ctx, uint64(greeting.Epoch), follows...); err != nil {
			return nil, "", err
		}
	}
	v, err = p.startStandIn(stream, greeting)
	return v, "", err
}

// startStandIn starts the core behind a greeted stream.
func (p *engineProcess) startStandIn(stream standInClient, greeting *enginev1.StandInAnswer) (*life, error) {
	arena := loop.NewArena(engineArena)
	l, err := posix.New(arena, engineOptions(p.cfg.Log))
	if err != nil {
		return nil, errors.Join(err, arena.Close())
	}
	v := newLife(p, l, arena)
	p.state.set(func(w *published) {
		w.engine = engine.State{Size: greeting.Size, Serving: true, Epoch: uint64(greeting.Epoch)}
	})
	q := &sendQueue{more: make(chan struct{}, 1)}
	core := &standInCore{arena: arena, size: greeting.Size, send: q.put, damaged: v.fatal,
		open: map[uint64]frontend.Request{}}
	p.loop, p.arena = l, arena
	p.mu.Lock()
	p.life = v
	p.mu.Unlock()
	go func() { v.fatal(q.run(v.ctx, stream)) }()
	go func() { v.fatal(answersTo(l, stream)) }()
	go func() {
		v.err = posix.Run(v.spin, l, core)
		v.fatal(v.err)
		close(v.ended)
	}()
	v.once.Do(func() { close(v.start) })
	return v, nil
}

type standInClient = grpc.BidiStreamingClient[enginev1.StandInRequest, enginev1.StandInAnswer]

// answersTo passes answers on to the core until the stream ends.
func answersTo(l *posix.Loop, stream standInClient) error {
	for {
		a, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("%w: %w", errEngineLost, err)
		}
		l.Post(a)
	}
}

// sendQueue takes requests from the core, which must not wait, to the stream. The core bounds them.
type sendQueue struct {
	mu      sync.Mutex
	waiting []*enginev1.StandInRequest
	more    chan struct{}
}

func (q *sendQueue) put(m *enginev1.StandInRequest) {
	q.mu.Lock()
	q.waiting = append(q.waiting, m)
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *sendQueue) run(ctx context.Context, stream standInClient) error {
	for {
		q.mu.Lock()
		batch := q.waiting
		q.waiting = nil
		q.mu.Unlock()
		for _, m := range batch {
			m.Checksum = crc32.Checksum(m.Data, castagnoli)
			if err := stream.Send(m); err != nil {
				return fmt.Errorf("%w: %w", errEngineLost, err)
			}
		}
		select {
		case <-q.more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// standInBytes bounds the data of requests that are sent and not answered.
const standInBytes = 8 << 20

// standInCore is the step core of a stand-in: what its frontend asks for is asked of the engine,
// and what the engine answers is the answer.
type standInCore struct {
	arena *loop.Arena
	size  int64
	send  func(m *enginev1.StandInRequest)
	// damaged ends the process, which cannot trust the connection.
	damaged func(error)

	fe       frontend.Frontend
	reqs     []frontend.Request
	detached func(error)
	// waiting are requests that are not sent yet, open those that are not answered, by their number
	// here; bytes is the data of open ones.
	waiting []frontend.Request
	open    map[uint64]frontend.Request
	bytes   int64
	number  uint64
}

// Step implements loop.Core.
func (c *standInCore) Step(now clock.Ticks, in []loop.Done, out *[]loop.Op) clock.Ticks {
	for i := range in {
		switch d := &in[i]; {
		case d.Kind == loop.Posted:
			c.posted(d.Value, out)
		case c.fe != nil && loop.OwnerOf(d.Tag) == engine.OwnerFrontend:
			c.fe.Handle(now, d, &c.reqs, out)
		}
	}
	if r, ok := c.fe.(frontend.Resumer); ok {
		r.Resume(&c.reqs, out)
	}
	c.waiting = append(c.waiting, c.reqs...)
	c.reqs = c.reqs[:0]
	c.forward()
	wake := clock.Never
	if x, ok := c.fe.(frontend.Expirer); ok {
		wake = x.Expire(now, out)
	}
	if c.detached != nil && c.fe.Stopped() {
		reply := c.detached
		c.fe, c.detached = nil, nil
		reply(nil)
	}
	return wake
}

// posted takes the messages of an engine that concern its frontend, and answers. Others are refused
// before they come here.
func (c *standInCore) posted(v any, out *[]loop.Op) {
	switch m := v.(type) {
	case engine.AttachFrontend:
		c.fe = m.Frontend
		c.fe.SetSize(c.size, out)
		c.fe.Start(out)
		m.Reply(nil)
	case engine.DetachFrontend:
		if c.fe == nil {
			m.Reply(nil)
			return
		}
		c.detached = m.Reply
		c.fe.Stop(out)
		c.abandon(out)
	case *enginev1.StandInAnswer:
		c.answered(m, out)
	}
}

// abandon gives back what is not answered: nobody waits for it any more.
func (c *standInCore) abandon(out *[]loop.Op) {
	for _, r := range c.open {
		c.waiting = append(c.waiting, r)
	}
	for i := range c.waiting {
		c.fe.Complete(c.waiting[i].ID, block.Unavailable, out)
	}
	clear(c.open)
	c.waiting, c.bytes = nil, 0
}

// forward sends what there is room for.
func (c *standInCore) forward() {
	for len(c.waiting) > 0 && len(c.open) < standInRequests {
		r := c.waiting[0]
		n := transferred(&r)
		if c.bytes > 0 && c.bytes+n > standInBytes {
			return
		}
		c.waiting = c.waiting[1:]
		c.number++
		c.open[c.number] = r
		c.bytes += n
		m := &enginev1.StandInRequest{Id: c.number, Kind: uint32(r.Kind), Fua: r.FUA, Unmap: r.Unmap, Trim: r.Trim,
			Offset: r.Off, Length: r.Len}
		if r.Kind == block.Write {
			m.Data = append([]byte(nil), c.arena.Seg(loop.Seg{Buf: r.Buf, Len: int32(r.Len)})...)
		}
		c.send(m)
	}
}

// transferred is how much data a request moves.
func transferred(r *frontend.Request) int64 {
	if r.Kind == block.Read || r.Kind == block.Write {
		return r.Len
	}
	return 0
}

func (c *standInCore) answered(a *enginev1.StandInAnswer, out *[]loop.Op) {
	r, ok := c.open[a.Id]
	if !ok {
		return // abandoned
	}
	read := r.Kind == block.Read && a.Code == uint32(block.OK)
	if crc32.Checksum(a.Data, castagnoli) != a.Checksum || read && int64(len(a.Data)) != r.Len {
		c.damaged(fmt.Errorf("stand-in: %w", errDamaged))
		return
	}
	delete(c.open, a.Id)
	c.bytes -= transferred(&r)
	if read {
		copy(c.arena.Seg(loop.Seg{Buf: r.Buf, Len: int32(r.Len)}), a.Data)
	}
	c.fe.Complete(r.ID, block.Code(a.Code), out)
}

// superviseStandIn offers the volume until this process is told to end or cannot go on. Either way
// a block device that is kept stays for the process that comes next, and ends if the instance
// manager is told that none does. So it is not looked at under a context that may end: the kept
// device would pass for one that is not what it was.
func (p *engineProcess) superviseStandIn(ctx context.Context) error {
	l := p.current()
	if ctx.Err() == nil {
		if err := l.offerFirst(context.WithoutCancel(ctx)); err != nil {
			l.fatal(err)
		}
	}
	select {
	case <-ctx.Done():
		l.fatal(nil)
	case <-l.ctx.Done():
	}
	if p.front.outlives(l) {
		p.srv.cut()
	} else {
		p.front.end(p)
	}
	return l.outcome()
}
