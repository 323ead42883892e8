package wire

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// ErrPeer says that the other side of a connection does not hold the key of the session: it does
// not know the secret, or what the two sides have said was changed between them.
var ErrPeer = errors.New("wire: the peer does not know the volume's secret, or the handshake was changed on its way")

// Proved is the payload of an initiation and of a hello. Said is the message as its sender has
// written it; every byte of it is proved.
type Proved struct {
	Said  []byte `json:"said"`
	Proof []byte `json:"proof"`
}

// Handshake is what one side of a connection knows before it has keys. What it proves, and the
// keys, follow from all of it.
type Handshake struct {
	// key is the volume's secret, or the key of a reader's grant; digester is made from it.
	key      []byte
	digester *Digester
	reader   bool
	// initiation and greeting are the payloads of these frames.
	initiation, greeting []byte
}

// derive is HMAC-SHA-256 over a label and parts, each preceded by its length.
func derive(key []byte, label string, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(label))
	for _, p := range parts {
		m.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(p))))
		m.Write(p)
	}
	return m.Sum(nil)
}

// role tells the proofs of engines and readers apart.
func (h *Handshake) role() string {
	if h.reader {
		return "reader "
	}
	return "engine "
}

// initiationProof has the same label in every version.
func (h *Handshake) initiationProof(said []byte) []byte {
	return derive(h.key, "ankole initiation "+h.role(), said)
}

func (h *Handshake) helloProof(said []byte) []byte {
	return derive(h.key, "ankole wire 6 "+h.role(), h.initiation, h.greeting, said)
}

// Initiate begins a handshake; it returns the payload of the initiation. key is the volume's
// secret, or the grant's key if m asks for a read-only session; d is made from the same.
func Initiate(m *InitiationMessage, key []byte, d *Digester) (h *Handshake, payload []byte) {
	h = &Handshake{key: key, digester: d, reader: m.Reader != nil}
	said := Marshal(m)
	h.initiation = Marshal(Proved{Said: said, Proof: h.initiationProof(said)})
	return h, h.initiation
}

// Accept checks the payload of an initiation on the side of a replica: ErrPeer if the sender knows
// neither the secret nor the grant's key. d is made from the secret.
func Accept(payload, secret []byte, volumeUUID string, d *Digester) (m InitiationMessage, h *Handshake, err error) {
	var p Proved
	if err := Unmarshal(payload, &p); err != nil {
		return m, nil, err
	}
	if err := Unmarshal(p.Said, &m); err != nil {
		return m, nil, err
	}
	h = &Handshake{key: secret, digester: d, reader: m.Reader != nil, initiation: payload}
	if h.reader {
		h.key = m.Reader.Key(secret, volumeUUID)
		h.digester = NewDigester(h.key)
	}
	switch {
	case !hmac.Equal(p.Proof, h.initiationProof(p.Said)):
		return m, nil, ErrPeer
	case len(m.Nonce) != NonceSize:
		return m, nil, fmt.Errorf("%w: initiation with a nonce of %d bytes", ErrFrame, len(m.Nonce))
	}
	return m, h, nil
}

// Greet adds the payload of the greeting, which was sent or received.
func (h *Handshake) Greet(payload []byte) { h.greeting = payload }

// Reader reports whether the session is to be a read-only one.
func (h *Handshake) Reader() bool { return h.reader }

// Hello returns m as the payload of a hello, and the keys of the session if it is the first one.
func (h *Handshake) Hello(m *HelloMessage) (payload []byte, k *Keys) {
	said := Marshal(m)
	send, recv := h.sessionKeys(said)
	return Marshal(Proved{Said: said, Proof: h.helloProof(said)}), &Keys{send: send, recv: recv, digester: h.digester}
}

// ReadHello checks the payload of a hello: ErrPeer if its sender is not who has sent the initiation
// and got the greeting as they are here. k are the keys of the session if it is the first one.
func (h *Handshake) ReadHello(payload []byte) (m HelloMessage, k *Keys, err error) {
	var p Proved
	if err := Unmarshal(payload, &p); err != nil {
		return m, nil, err
	}
	if !hmac.Equal(p.Proof, h.helloProof(p.Said)) {
		return m, nil, ErrPeer
	}
	recv, send := h.sessionKeys(p.Said)
	return m, &Keys{send: send, recv: recv, digester: h.digester}, Unmarshal(p.Said, &m)
}

// sessionKeys are two keys for AES-128-GMAC: from who says hello, and to it.
func (h *Handshake) sessionKeys(said []byte) (from, to cipher.AEAD) {
	k := derive(h.key, "ankole wire 6 session ", h.initiation, h.greeting, said)
	return gmac(k[:16]), gmac(k[16:])
}

func gmac(key []byte) cipher.AEAD {
	b, err := aes.NewCipher(key)
	if err != nil {
		panic("wire: " + err.Error()) // the size of the key
	}
	a, err := cipher.NewGCM(b)
	if err != nil {
		panic("wire: " + err.Error()) // the size of the block
	}
	return a
}

// Keys authenticate the frames of one session. Each direction has a key and a counter of its own:
// a frame that is repeated, left out, moved or sent back does not have the tag that is expected.
type Keys struct {
	send, recv     cipher.AEAD
	digester       *Digester
	sent, received uint64
	nonce          [12]byte
	tagged         [HeaderSize]byte
	// fromPeer: a frame of the peer has had the right tag, so it has the same keys.
	fromPeer bool
}

// TagSize is the size of a frame's tag, and of a payload's digest.
const TagSize = 16

// tagAt is where the tag is in a header: what is before it is authenticated.
const tagAt = HeaderSize - TagSize

func (k *Keys) count(n uint64) []byte {
	binary.LittleEndian.PutUint64(k.nonce[:], n)
	return k.nonce[:]
}

// seal completes a header of a frame to be sent with its tag. digest is that of the payload, nil
// without one.
func (k *Keys) seal(p []byte, digest *[TagSize]byte) {
	n := copy(k.tagged[:], p[:tagAt])
	if digest != nil {
		n += copy(k.tagged[tagAt:], digest[:])
	}
	k.send.Seal(p[:tagAt:HeaderSize][tagAt:], k.count(k.sent), nil, k.tagged[:n])
	k.sent++
}

// open reports whether a received header with its payload's digest is the next frame that the peer
// has sent.
func (k *Keys) open(p []byte, digest *[TagSize]byte) bool {
	n := copy(k.tagged[:], p[:tagAt])
	if digest != nil {
		n += copy(k.tagged[tagAt:], digest[:])
	}
	_, err := k.recv.Open(nil, k.count(k.received), p[tagAt:HeaderSize], k.tagged[:n])
	k.received++
	return err == nil
}

// Digester computes digests of payloads: GMAC under a key that all sessions of a volume share, with
// a nonce of zeroes. That is a keyed universal hash. No digest is ever sent: the tag of the frame
// covers it, under the session's key with a nonce of its own. So a payload that goes to several
// replicas is digested once.
type Digester struct {
	mac    cipher.AEAD
	nonce  [12]byte
	digest [TagSize]byte // the last one: what is passed to mac is not on the stack
}

// NewDigester derives the key from the volume's secret, or from a grant's key.
func NewDigester(key []byte) *Digester {
	return &Digester{mac: gmac(derive(key, "ankole wire 6 payload ")[:16])}
}

func (d *Digester) sum(p []byte) [TagSize]byte {
	d.mac.Seal(d.digest[:0], d.nonce[:], nil, p)
	return d.digest
}

// SameAddress compares two addresses, host and port, in whatever way either is written.
func SameAddress(a, b string) bool {
	x, errX := netip.ParseAddrPort(a)
	y, errY := netip.ParseAddrPort(b)
	if errX != nil || errY != nil {
		return a == b && a != ""
	}
	return x.Port() == y.Port() && x.Addr().Unmap().WithZone("") == y.Addr().Unmap().WithZone("")
}

// MeantFor checks that an initiation whose proof holds is meant for a replica at this address.
func (m *InitiationMessage) MeantFor(address string) error {
	if SameAddress(m.Address, address) {
		return nil
	}
	return fmt.Errorf("the hello is for a replica at %q, and the connection has come in at %q: it was led here by "+
		"somebody else, or addresses are translated between engine and replica", m.Address, address)
}

// MeantFor checks that a hello is meant for this replica.
func (m *HelloMessage) MeantFor(member string) error {
	if m.Member == member {
		return nil
	}
	return fmt.Errorf("the hello is for replica %q, and this is %q: the connection was led here by somebody else",
		m.Member, member)
}
