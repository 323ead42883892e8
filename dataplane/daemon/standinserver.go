package daemon

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
)

// This file is the side of the engine that serves a volume for a process on another node, which
// stands in for it there while the volume migrates; docs/design/migration.md has the protocol and
// why it is safe.

// standInRequests bounds the requests of a stand-in that are under way.
const standInRequests = 64

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// standIns are the stand-ins of an engine process: one at a time. A request of an earlier one must
// not land after a later one was greeted: it may have been sent again, answered, and followed by
// another write to the same place.
type standIns struct {
	mu     sync.Mutex
	latest *standInCall
}

// standInCall is one call of StandIn. open counts what may still ask the core for something, and
// the requests that it has not answered; over is closed when there is nothing of that any more,
// here and in the calls before.
type standInCall struct {
	ctx    context.Context
	cancel context.CancelFunc
	open   sync.WaitGroup
	over   chan struct{}
}

// enter ends the call before and waits until nothing of it is under way.
func (s *standIns) enter(ctx context.Context) (*standInCall, error) {
	c := &standInCall{over: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(ctx)
	s.mu.Lock()
	before := s.latest
	s.latest = c
	s.mu.Unlock()
	if before == nil {
		return c, nil
	}
	before.cancel()
	select {
	case <-before.over:
		return c, nil
	case <-c.ctx.Done():
		c.cancel()
		go func() {
			<-before.over
			close(c.over)
		}()
		return nil, status.FromContextError(c.ctx.Err()).Err()
	}
}

// leave notes when the call is over: a core that has ended carries nothing out any more.
func (c *standInCall) leave(l *life) {
	c.cancel()
	done := make(chan struct{})
	go func() {
		c.open.Wait()
		close(done)
	}()
	go func() {
		defer close(c.over)
		select {
		case <-done:
		case <-l.ended:
		}
	}()
}

type standInStream = grpc.BidiStreamingServer[enginev1.StandInRequest, enginev1.StandInAnswer]

// StandIn implements enginev1.EngineServer.
func (s *service) StandIn(stream standInStream) error {
	if s.p.cfg.StandInFor != "" {
		return status.Error(codes.FailedPrecondition, errStandIn.Error())
	}
	hello, err := s.p.admitStandIn(stream)
	if err != nil {
		return err
	}
	if !hello.referred {
		return s.p.serveStandIn(stream, hello) // it knows no other address, or there is none
	}
	address, err := s.p.dataAddress()
	switch {
	case err != nil:
		return status.Error(codes.Unavailable, err.Error())
	case address != "":
		return s.p.sendProved(stream, hello, &enginev1.StandInAnswer{DataAddress: address})
	}
	return s.p.serveStandIn(stream, hello)
}

// standInService serves stand-ins, and nothing else, on the storage network.
type standInService struct {
	enginev1.UnimplementedEngineServer
	p *engineProcess
}

// StandIn implements enginev1.EngineServer.
func (s *standInService) StandIn(stream standInStream) error {
	hello, err := s.p.admitStandIn(stream)
	if err != nil {
		return err
	}
	return s.p.serveStandIn(stream, hello)
}

// dataAddress is where stand-ins bring their requests, on the storage network; "" if the volume has
// none. This process listens there from the first question on: most volumes never migrate.
func (p *engineProcess) dataAddress() (string, error) {
	host, port, err := net.SplitHostPort(p.cfg.Listen)
	if err != nil || p.cfg.LocalHost == "" || p.cfg.LocalHost == host {
		return "", nil
	}
	address := net.JoinHostPort(p.cfg.LocalHost, port)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dataSrv != nil {
		return address, nil
	}
	p.dataSrv, err = serveControl(address, identity{p.cfg.VolumeName, p.cfg.Instance}, p.cfg.Certificates, true,
		func(s *grpc.Server) { enginev1.RegisterEngineServer(s, &standInService{p: p}) })
	if err != nil {
		return "", fmt.Errorf("requests of the process that stands in for this engine would come over the storage network, "+
			"where it cannot listen: %w", err)
	}
	p.cfg.Log.Info("engine takes requests of a stand-in", "address", address, "network", p.cfg.Network)
	return address, nil
}

func (p *engineProcess) endDataServer(end func(*server)) {
	p.mu.Lock()
	s := p.dataSrv
	p.mu.Unlock()
	if s != nil {
		end(s)
	}
}

// serveStandIn greets a caller that was let in, and carries its requests out.
func (p *engineProcess) serveStandIn(stream standInStream, hello *standInHello) error {
	l := p.current()
	if l == nil {
		return status.Error(codes.Unavailable, errBetween.Error())
	}
	call, err := p.standIns.enter(stream.Context())
	if err != nil {
		return err
	}
	defer call.leave(l)
	select {
	case <-l.start:
	case <-l.ctx.Done():
		return status.Error(codes.Unavailable, "the engine cannot go on")
	case <-call.ctx.Done():
		return errReplacedStandIn
	}
	v, _ := p.state.get()
	err = p.sendProved(stream, hello, &enginev1.StandInAnswer{Epoch: int64(v.engine.Epoch), Follows: int64(l.follows),
		Size: v.engine.Size, Epochs: l.epochs})
	if err != nil {
		return err
	}
	return call.serve(stream, l)
}

var errReplacedStandIn = status.Error(codes.Aborted, "another process stands in for this engine now")

// serve carries requests out until the stream, the call or the engine ends.
func (c *standInCall) serve(stream standInStream, l *life) error {
	slots, answers := make(chan struct{}, standInRequests), make(chan *enginev1.StandInAnswer, standInRequests)
	received := make(chan error, 1)
	c.open.Go(func() { received <- c.receive(stream, l, slots, answers) })
	for {
		select {
		case a := <-answers:
			if a.Code == uint32(block.Unavailable) {
				return status.Error(codes.Unavailable, "the engine does not serve the volume any more")
			}
			a.Checksum = crc32.Checksum(a.Data, castagnoli)
			if err := stream.Send(a); err != nil {
				return err
			}
			<-slots
		case err := <-received:
			return err
		case <-l.ctx.Done():
			return status.Error(codes.Unavailable, "the engine cannot go on")
		case <-c.ctx.Done():
			return errReplacedStandIn
		}
	}
}

var errDamaged = errors.New("a message was damaged on its way")

// receive gives requests to the core in the order in which they come. There is always room for an
// answer: it is taken before the next request is let in.
func (c *standInCall) receive(stream standInStream, l *life, slots chan<- struct{},
	answers chan<- *enginev1.StandInAnswer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if crc32.Checksum(m.Data, castagnoli) != m.Checksum {
			return status.Error(codes.DataLoss, errDamaged.Error())
		}
		if m.Length < 0 || block.Kind(m.Kind) == block.Read && m.Length > block.MaxTransfer {
			return status.Error(codes.InvalidArgument, fmt.Sprintf("a request for %d bytes", m.Length))
		}
		select {
		case slots <- struct{}{}:
		case <-c.ctx.Done():
			return errReplacedStandIn
		}
		data := m.Data
		if block.Kind(m.Kind) == block.Read {
			data = make([]byte, m.Length)
		}
		c.open.Add(1)
		l.loop.Post(engine.Outside{
			Request: frontend.Request{Kind: block.Kind(m.Kind), FUA: m.Fua, Unmap: m.Unmap, Trim: m.Trim,
				Off: m.Offset, Len: m.Length},
			Data: data,
			Done: func(code block.Code) {
				a := &enginev1.StandInAnswer{Id: m.Id, Code: uint32(code)}
				if block.Kind(m.Kind) == block.Read && code == block.OK {
					a.Data = data
				}
				answers <- a
				c.open.Done()
			}})
	}
}
