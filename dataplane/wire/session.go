package wire

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"ankole.storage/dataplane/block"
)

// BoundVersion is the first protocol version whose hello is bound to the peer, and whose frames are
// authenticated under a key of the session.
const BoundVersion = 5

// ErrPeer says that the other side of a connection does not hold the key of the session: it does
// not know the secret, or what the two sides have said was changed between them.
var ErrPeer = errors.New("wire: the peer does not know the volume's secret, or the handshake was changed on its way")

// BoundHello is the payload of a hello since BoundVersion. Said is the HelloMessage as its sender
// has written it; every byte of it is proved, and so is every byte of the greeting.
type BoundHello struct {
	Said  []byte `json:"said"`
	Proof []byte `json:"proof"`
}

// derive is HMAC-SHA-256 over a label, the greeting with its length, and what was said.
func derive(key []byte, label string, greeting, said []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(label))
	m.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(greeting))))
	m.Write(greeting)
	m.Write(said)
	return m.Sum(nil)
}

// proofLabel tells the proofs of the roles apart.
func proofLabel(reader bool) string {
	if reader {
		return "ankole wire 5 reader "
	}
	return "ankole wire 5 engine "
}

// Bind returns m as the payload of a hello which answers a greeting, and the keys of the session if
// it is the first one. key is the volume's secret, or the grant's key if m asks for a read-only
// session; d is made from the same.
func (m *HelloMessage) Bind(key, greeting []byte, d *Digester) (payload []byte, k *Keys) {
	said := Marshal(m)
	send, recv := sessionKeys(key, greeting, said)
	return Marshal(BoundHello{Said: said, Proof: derive(key, proofLabel(m.Reader != nil), greeting, said)}),
		&Keys{send: send, recv: recv, digester: d}
}

// ReadHello decodes the payload of a hello of any version; bound is nil before BoundVersion.
func ReadHello(p []byte) (m HelloMessage, bound *BoundHello, err error) {
	var b BoundHello
	if err := Unmarshal(p, &b); err != nil {
		return m, nil, err
	}
	if b.Said == nil {
		err = Unmarshal(p, &m)
		return m, nil, err
	}
	err = Unmarshal(b.Said, &m)
	return m, &b, err
}

// Proved reports whether the sender of the hello knows key and has answered this greeting.
func (b *BoundHello) Proved(key, greeting []byte, reader bool) bool {
	return hmac.Equal(b.Proof, derive(key, proofLabel(reader), greeting, b.Said))
}

// Keys returns the keys of the session for the side that has received the hello.
func (b *BoundHello) Keys(key, greeting []byte, d *Digester) *Keys {
	recv, send := sessionKeys(key, greeting, b.Said)
	return &Keys{send: send, recv: recv, digester: d}
}

// sessionKeys are two keys for AES-128-GMAC: from who says hello, and to it.
func sessionKeys(key, greeting, said []byte) (from, to cipher.AEAD) {
	k := derive(key, "ankole wire 5 session ", greeting, said)
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
	// fromPeer: a frame of the peer has had the right tag.
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
	return &Digester{mac: gmac(derive(key, "ankole wire 5 payload ", nil, nil)[:16])}
}

func (d *Digester) sum(p []byte) [TagSize]byte {
	d.mac.Seal(d.digest[:0], d.nonce[:], nil, p)
	return d.digest
}

// downgradeMark, followed by a version, ends the nonce of a replica that speaks BoundVersion or
// later: the proofs of earlier versions cover the nonce, so an engine notices that somebody has
// lowered the version in a greeting.
var downgradeMark = []byte("ankole\x00")

// MarkNonce puts the mark of Version into a replica's nonce.
func MarkNonce(nonce []byte) []byte {
	marked := append(bytes.Clone(nonce[:NonceSize-len(downgradeMark)-1]), downgradeMark...)
	return append(marked, byte(Version))
}

// CheckDowngrade returns an error if version is lower than what both sides speak according to the
// replica's nonce.
func CheckDowngrade(nonce []byte, version int) error {
	mark := nonce[NonceSize-len(downgradeMark)-1 : NonceSize-1]
	speaks := int(nonce[NonceSize-1])
	if !bytes.Equal(mark, downgradeMark) || version >= min(speaks, Version) {
		return nil
	}
	return fmt.Errorf("%w: the greeting offers protocol version %d, but the replica's nonce says that it speaks %d: "+
		"somebody has changed the greeting on its way", ErrFrame, version, speaks)
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

// Bound checks that a hello whose proof holds is meant for this replica, reached at this address.
func (m *HelloMessage) Bound(member, address string) error {
	switch {
	case m.Member != member:
		return fmt.Errorf("the hello is for replica %q, and this is %q: the connection was led here by somebody else",
			m.Member, member)
	case !SameAddress(m.Address, address):
		return fmt.Errorf("the hello is for a replica at %q, and the connection has come in at %q: it was led here by "+
			"somebody else, or addresses are translated between engine and replica", m.Address, address)
	}
	return nil
}

// mayBeOpen reports whether a frame without a tag may come in a session that has keys: only the
// refusal of a replica that has not found the proof to hold, and so has no keys.
func (k *Keys) mayBeOpen(h *Header) bool {
	return !k.fromPeer && h.Type == Hello && h.IsResponse() && h.Code != block.OK
}
