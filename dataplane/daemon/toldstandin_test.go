package daemon

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"google.golang.org/grpc"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/device/keeper"
	"ankole.storage/dataplane/device/kept"
	waits "ankole.storage/test/wait"
)

// greeter is an engine of volume u and secret s that greets a stand-in, after it has called before.
type greeter struct {
	enginev1.UnimplementedEngineServer
	before func()
}

func (g *greeter) StandIn(stream standInStream) error {
	p := &engineProcess{cfg: EngineConfig{VolumeUUID: "u", Secret: []byte("s")}}
	hello, err := p.admitStandIn(stream)
	if err != nil {
		return err
	}
	g.before()
	_ = p.sendProved(stream, hello, &enginev1.StandInAnswer{Epoch: 5, Follows: 4, Size: 1 << 20}) // it may have left
	<-stream.Context().Done()
	return nil
}

// TestStandInThatIsToldToEnd, before its engine answers or between that and its device: it ends at
// once and well, and the device of the process before it stays for the one that comes next.
func TestStandInThatIsToldToEnd(t *testing.T) {
	for _, listens := range []bool{false, true} {
		socket, owner := standInsDevice(t)
		ctx, tell := context.WithCancel(t.Context())
		defer tell()
		engine := freeAddress(t)
		if listens {
			srv, err := serveControl(engine, identity{}, nil, true, func(s *grpc.Server) {
				enginev1.RegisterEngineServer(s, &greeter{before: tell})
			})
			if err != nil {
				t.Fatal(err)
			}
			defer srv.cut()
		}
		ended := make(chan error, 1)
		go func() {
			ended <- RunEngine(ctx, EngineConfig{VolumeName: "vol", VolumeUUID: "u", Instance: "s", Listen: freeAddress(t),
				StandInFor: engine, Frontend: FrontendBlockdev, Transport: TransportFUSELoop, Keeper: socket,
				Secret: []byte("s"), Log: slog.New(slog.DiscardHandler)})
		}()
		if !listens {
			tell()
		}
		waits.Within(t, greetingTime/2, "the stand-in ends", func() error {
			select {
			case err := <-ended:
				ended <- err
				return nil
			default:
				return errors.New("it runs")
			}
		})
		if err := <-ended; err != nil {
			t.Errorf("engine listens %v: it ends with %v", listens, err)
		}
		deviceStays(t, socket, owner)
	}
}

// TestStandInThatIsToldToEndWithADevice: it has taken the device, and not brought it up, or is
// about to. Nothing is judged by a context that has ended.
func TestStandInThatIsToldToEndWithADevice(t *testing.T) {
	for _, late := range []bool{false, true} {
		socket, owner := standInsDevice(t)
		s, _ := slowEngine(t)
		p := s.p
		p.cfg.Keeper, p.cfg.VolumeUUID, p.cfg.Frontend, p.cfg.Transport = socket, "u", FrontendBlockdev, TransportFUSELoop
		if taken, err := p.takeKept(t.Context(), 5, 4); !taken || err != nil {
			t.Fatalf("taken: %v, %v", taken, err)
		}
		ctx, tell := context.WithCancel(t.Context())
		defer tell()
		if late {
			p.life.offer = func(ctx context.Context) error {
				tell()
				if ctx.Err() != nil {
					t.Error("the device is looked at under a context that has ended")
				}
				return nil
			}
		} else {
			tell()
		}
		if err := p.superviseStandIn(ctx); err != nil {
			t.Errorf("told to end while the device is brought up: %v, it ends with %v", late, err)
		}
		if k := p.takeOutKept(); k != nil { // the end of the process
			closeAll(k.fds)
			if err := k.held.Leave(); err != nil {
				t.Fatal(err)
			}
		}
		deviceStays(t, socket, owner)
	}
}

// standInsDevice has a device kept that a stand-in has left, under epoch 4.
func standInsDevice(t *testing.T) (socket string, owner keeper.Owner) {
	socket, null := keeperHere(t)
	owner = keeper.Owner{Volume: "vol", Engine: "s"}
	state := keptState{Kept: blockdev.Kept{Loop: 3}, Owners: kept.Owners{VolumeUUID: "u", Epochs: []uint64{4}}}
	before, err := keeper.Keep(socket, owner, state.encode(), int(null.Fd()))
	if err == nil {
		err = before.Leave()
	}
	if err != nil {
		t.Fatal(err)
	}
	return socket, owner
}

func deviceStays(t *testing.T, socket string, owner keeper.Owner) {
	t.Helper()
	held, _, fds, err := keeper.Take(socket, owner)
	if err != nil {
		t.Errorf("the device that was kept: %v", err)
		return
	}
	closeAll(fds)
	if err := held.Drop(); err != nil {
		t.Error(err)
	}
}
