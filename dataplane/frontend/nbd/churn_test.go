package nbd_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/frontend/frontendtest"
	"ankole.storage/dataplane/frontend/nbd/nbdclient"
	"ankole.storage/test/seeded"
)

// Clients come and go, cleanly or not, many more than may be there at once: every one of them is
// served, and none leaves its place taken.
func TestClientsComeAndGo(t *testing.T) {
	tr := &transport{network: "unix"}
	r := frontendtest.Up(t, tr, 64<<20, nil)
	path := strings.TrimPrefix(tr.addr, "unix:")
	src := seeded.New(t, "every client is served, and none leaves its place taken (docs/design/frontends.md)")
	src.Seed(1)
	rng := src.Rand(1)
	for i := range 300 {
		switch i % 3 {
		case 0:
			c, err := nbdclient.Dial(t.Context(), tr.addr, nbdclient.Options{Export: "vol"})
			if err != nil {
				t.Fatalf("client %d: %v", i, err)
			}
			if _, err := c.WriteAt(make([]byte, 4096), 0); err != nil {
				t.Fatalf("client %d: %v", i, err)
			}
			c.Close()
		default:
			breakOff(t, path, rng, i)
		}
	}
	r.Until("all clients gone", func(*frontendtest.Device) bool { return tr.server.Clients() == 0 })
}

// breakOff is a client that goes on up to some point and closes its connection there.
func breakOff(t *testing.T, path string, rng *rand.Rand, i int) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("client %d: %v", i, err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(frontendtest.Patience)); err != nil {
		t.Fatal(err)
	}
	be := binary.BigEndian
	b := be.AppendUint32(nil, 3)
	b = be.AppendUint64(b, 0x49484156454f5054)
	b = be.AppendUint32(b, 1)
	b = be.AppendUint32(b, 3)
	b = append(b, "vol"...)
	for k := range rng.IntN(40) {
		typ, size := uint16(rng.IntN(2)), uint32(512)<<rng.IntN(12)
		b = be.AppendUint32(b, 0x25609513)
		b = be.AppendUint16(b, 0)
		b = be.AppendUint16(b, typ)
		b = be.AppendUint64(b, uint64(k))
		b = be.AppendUint64(b, 0)
		b = be.AppendUint32(b, size)
		if typ == 1 {
			b = append(b, make([]byte, size)...)
		}
	}
	if rng.IntN(2) == 0 {
		b = b[:rng.IntN(len(b)+1)]
	}
	var greeting [18]byte
	if n, err := c.Read(greeting[:]); err != nil {
		t.Fatalf("client %d: turned away after %d bytes: %v", i, n, err)
	}
	// a server that waits for us to read is a place to leave too
	_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	_, _ = c.Write(b)
}
