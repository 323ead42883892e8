package daemon

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/wire"
)

// This file is how an engine and the process that stands in for it know each other;
// docs/design/migration.md has why it is safe.

// standInNonce is the length of the challenge and of the nonce, in bytes.
const standInNonce = 32

// errNotTheEngine is an answer that does not come from the volume's engine, or not whole.
var errNotTheEngine = errors.New("the answer is not proved to be of the volume's engine")

func newNonce() []byte {
	b := make([]byte, standInNonce)
	_, _ = rand.Read(b) // never fails: the runtime aborts instead
	return b
}

// standInHello is what both sides have said before either believes anything. Each proof is over all
// of it. The address is the one that the target has connected to: a proof that is passed on to
// another process is worth nothing there.
type standInHello struct {
	volumeUUID       string
	challenge, nonce []byte
	address          string
	referred         bool
}

// proofOfTarget shows that whoever sends it knows the volume's secret.
func (h *standInHello) proofOfTarget(secret []byte) []byte { return h.proof(secret, "target", nil) }

// proofOfEngine shows the same of whoever gives the answer, and that it is the answer.
func (h *standInHello) proofOfEngine(secret []byte, a *enginev1.StandInAnswer) []byte {
	var said []byte
	for _, n := range slices.Concat([]uint64{uint64(a.Epoch), uint64(a.Follows), uint64(a.Size)}, a.Epochs) {
		said = binary.BigEndian.AppendUint64(said, n)
	}
	return h.proof(secret, "engine", said, []byte(a.DataAddress))
}

// proof is HMAC-SHA-256 over the side and all that was said, each with its length before it.
func (h *standInHello) proof(secret []byte, side string, said ...[]byte) []byte {
	m := hmac.New(sha256.New, secret)
	referred := []byte{0}
	if h.referred {
		referred[0] = 1
	}
	for _, b := range slices.Concat([][]byte{[]byte("ankole stand-in 2 " + side), []byte(h.volumeUUID), h.challenge,
		h.nonce, []byte(h.address), referred}, said) {
		m.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
		m.Write(b)
	}
	return m.Sum(nil)
}

// admitStandIn lets in who knows the volume's secret and has connected to this process.
func (p *engineProcess) admitStandIn(stream standInStream) (*standInHello, error) {
	h := &standInHello{volumeUUID: p.cfg.VolumeUUID, challenge: newNonce()}
	if err := stream.Send(&enginev1.StandInAnswer{Challenge: h.challenge}); err != nil {
		return nil, err
	}
	m, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	h.nonce, h.address, h.referred = m.Nonce, m.Address, m.Referred
	if len(h.nonce) != standInNonce || !hmac.Equal(m.Proof, h.proofOfTarget(p.cfg.Secret)) {
		return nil, status.Error(codes.Unauthenticated, "the proof does not fit the secret of this volume, or is of another version")
	}
	caller, ok := peer.FromContext(stream.Context())
	if !ok || caller.LocalAddr == nil || !wire.SameAddress(h.address, caller.LocalAddr.String()) {
		return nil, status.Error(codes.Unauthenticated, fmt.Sprintf("the proof is for the process at %s, and this is another one",
			h.address))
	}
	return h, nil
}

// sendProved sends an answer that the target believes.
func (p *engineProcess) sendProved(stream standInStream, h *standInHello, a *enginev1.StandInAnswer) error {
	a.Proof = h.proofOfEngine(p.cfg.Secret, a)
	return stream.Send(a)
}

// askToStandIn proves to the engine at an address who asks, and returns its answer, which is proved
// too.
func (p *engineProcess) askToStandIn(stream standInClient, address string) (*enginev1.StandInAnswer, error) {
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	h := &standInHello{volumeUUID: p.cfg.VolumeUUID, challenge: first.Challenge, nonce: newNonce(), address: address,
		referred: address == p.cfg.StandInFor}
	err = stream.Send(&enginev1.StandInRequest{Nonce: h.nonce, Address: h.address, Referred: h.referred,
		Proof: h.proofOfTarget(p.cfg.Secret)})
	if err != nil {
		return nil, err
	}
	a, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if len(h.challenge) != standInNonce || !hmac.Equal(a.Proof, h.proofOfEngine(p.cfg.Secret, a)) {
		return nil, errNotTheEngine
	}
	return a, nil
}
