package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	enginev1 "ankole.storage/api/rpc/engine/v1"
)

// relay is a stranger to whom a target is led: it passes everything on between the target and the
// engine, both ways, and notes what the engine said after the challenge.
type relay struct {
	enginev1.UnimplementedEngineServer
	engine string
	let    chan *enginev1.StandInAnswer
}

func (r *relay) StandIn(target standInStream) error {
	conn, err := grpc.NewClient("passthrough:///"+r.engine, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(target.Context())
	defer cancel()
	engine, err := enginev1.NewEngineClient(conn).StandIn(ctx)
	if err != nil {
		return err
	}
	go func() {
		for m, err := target.Recv(); err == nil && engine.Send(m) == nil; m, err = target.Recv() {
		}
		cancel()
	}()
	for first := true; ; first = false {
		a, err := engine.Recv()
		if err != nil {
			return err
		}
		if !first {
			r.let <- a
		}
		if err := target.Send(a); err != nil {
			return err
		}
	}
}

// listening serves the stream of stand-ins at an address of its own until the test ends.
func listening(t *testing.T, s enginev1.EngineServer) string {
	t.Helper()
	address := freeAddress(t)
	srv, err := serveControl(address, identity{}, nil, true, func(g *grpc.Server) { enginev1.RegisterEngineServer(g, s) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.cut)
	return address
}

// target is a process that is to stand in for the engine at an address.
func target(t *testing.T, engine, secret string) *engineProcess {
	t.Helper()
	p := &engineProcess{cfg: EngineConfig{VolumeName: "vol", VolumeUUID: "u", StandInFor: engine,
		Transport: TransportNBDUnix, Secret: []byte(secret), Log: slog.New(slog.DiscardHandler)}}
	p.state.init()
	t.Cleanup(func() {
		if p.life != nil {
			p.end()
		}
	})
	return p
}

// standsIn begins to stand in for the engine at an address.
func (p *engineProcess) standsIn(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), greetingTime)
	defer cancel()
	return p.beginStandIn(ctx)
}

// TestStandInIsNotRelayed: a stranger to whom the target is led gets neither into the engine by the
// target's proof, nor the target by the engine's.
func TestStandInIsNotRelayed(t *testing.T) {
	s, _ := slowEngine(t)
	s.p.cfg.VolumeUUID, s.p.cfg.Secret = "u", []byte("secret")
	engine := listening(t, s)
	r := &relay{engine: engine, let: make(chan *enginev1.StandInAnswer, 1)}
	if err := target(t, listening(t, r), "secret").standsIn(t); err == nil {
		t.Error("the target takes a stranger for its engine")
	}
	select {
	case a := <-r.let:
		t.Errorf("the engine takes a stranger for the target: %v", a)
	default:
	}
	if err := target(t, engine, "another").standsIn(t); err == nil {
		t.Error("a target with another secret is let in")
	}
	if err := target(t, engine, "secret").standsIn(t); err != nil {
		t.Errorf("without the stranger: %v", err)
	}
}

// impostor greets a target as an engine does, and knows no secret.
type impostor struct {
	enginev1.UnimplementedEngineServer
	answer *enginev1.StandInAnswer
}

func (i *impostor) StandIn(stream standInStream) error {
	if err := stream.Send(&enginev1.StandInAnswer{Challenge: make([]byte, 32)}); err != nil {
		return err
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(i.answer); err != nil {
		return err
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// TestStandInWantsItsEngine: who does not know the secret neither serves a target nor sends it
// anywhere.
func TestStandInWantsItsEngine(t *testing.T) {
	s, _ := slowEngine(t)
	s.p.cfg.VolumeUUID, s.p.cfg.Secret = "u", []byte("secret")
	for name, answer := range map[string]*enginev1.StandInAnswer{
		"greets": {Epoch: 5, Follows: 4, Size: 1 << 20},
		"refers": {DataAddress: listening(t, s)},
	} {
		began := time.Now()
		if err := target(t, listening(t, &impostor{answer: answer}), "secret").standsIn(t); err == nil {
			t.Errorf("an impostor %s, and is believed", name)
		}
		if took := time.Since(began); took > greetingTime/2 {
			t.Errorf("an impostor %s: the target notices it after %v", name, took)
		}
	}
}

// TestStandInProofsDiffer: a proof is of one side and of everything that was said.
func TestStandInProofsDiffer(t *testing.T) {
	hello := func(change func(*standInHello)) *standInHello {
		h := &standInHello{volumeUUID: "u", challenge: []byte{1}, nonce: []byte{2}, address: "10.0.0.1:10000"}
		change(h)
		return h
	}
	same := func(*standInHello) {}
	secret := []byte("s")
	greets := func(epoch, follows, size int64, refers string, epochs ...uint64) []byte {
		return hello(same).proofOfEngine(secret, &enginev1.StandInAnswer{Epoch: epoch, Follows: follows, Size: size,
			DataAddress: refers, Epochs: epochs})
	}
	seen := map[string]string{}
	for name, proof := range map[string][]byte{
		"target":                  hello(same).proofOfTarget(secret),
		"target, other secret":    hello(same).proofOfTarget([]byte("t")),
		"target, other volume":    hello(func(h *standInHello) { h.volumeUUID = "v" }).proofOfTarget(secret),
		"target, other challenge": hello(func(h *standInHello) { h.challenge = []byte{3} }).proofOfTarget(secret),
		"target, other nonce":     hello(func(h *standInHello) { h.nonce = []byte{3} }).proofOfTarget(secret),
		"target, moved byte": hello(func(h *standInHello) {
			h.challenge, h.nonce = []byte{1, 2}, nil
		}).proofOfTarget(secret),
		"target, other address": hello(func(h *standInHello) { h.address = "10.0.0.1:10001" }).proofOfTarget(secret),
		"target, referred":      hello(func(h *standInHello) { h.referred = true }).proofOfTarget(secret),
		"engine":                greets(1, 2, 3, "", 4),
		"engine, other epoch":   greets(2, 2, 3, "", 4),
		"engine, other follows": greets(1, 1, 3, "", 4),
		"engine, other size":    greets(1, 2, 4, "", 4),
		"engine, more epochs":   greets(1, 2, 3, "", 4, 5),
		"engine, refers":        greets(1, 2, 3, "10.0.1.1:10000", 4),
		"engine, other address": hello(func(h *standInHello) { h.address = "" }).proofOfEngine(secret,
			&enginev1.StandInAnswer{Epoch: 1, Follows: 2, Size: 3, Epochs: []uint64{4}}),
	} {
		if other, ok := seen[string(proof)]; ok {
			t.Errorf("%s has the proof of %s", name, other)
		}
		seen[string(proof)] = name
	}
}
