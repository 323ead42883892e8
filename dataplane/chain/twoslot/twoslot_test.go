package twoslot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

var (
	records = Format{Magic: "ANKMEMBR", Size: 8192}
	pages   = Format{Magic: "ANKWHITE", Size: 4096, Pages: true}
)

// payloadOf is some content of a length.
func payloadOf(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*7 + 1)
	}
	return p
}

// The bytes are fixed: those below were written by version 1 and must be read for ever.
func TestBytes(t *testing.T) {
	key := [16]byte{0xaa, 15: 0xbb}
	for _, c := range []struct {
		name    string
		format  Format
		owner   Owner
		seq     uint64
		payload []byte
		begins  string
		sum     string
	}{
		{"record", records, Owner{Key: key}, 5, []byte("pay"), "ANKMEMBR\x01\x00\x00\x00\x03\x00\x00\x00\x05\x00\x00" +
			"\x00\x00\x00\x00\x00\xaa\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xbb",
			"01a28275ca43ded2927eb56a0ef3758da6cf4314f70c11f895abd4f6b0b8b017"},
		{"full log", Format{Magic: "ANKDIRTY", Size: 8192}, Owner{Key: key}, 1<<40 + 6, payloadOf(8120), "ANKDIRTY",
			"bf165456be3f4d7cb700b9d2b8274ad9aaf5284f29f7b11f25a808f1015f48be"},
		{"long account", Format{Magic: "ANKABSNT", Size: 36864}, Owner{}, 2, payloadOf(20000), "ANKABSNT",
			"8f3ee21fe0490b189440225d5251d722df08a79bc3a02b5cabfcb2b0845d72a6"},
		{"page", pages, Owner{Key: key, File: 0x1122334455667788, Page: 7}, 9, payloadOf(2048),
			"ANKWHITE\x01\x00\x00\x00\x07\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\xaa\x00\x00\x00\x00\x00\x00\x00\x00" +
				"\x00\x00\x00\x00\x00\x00\xbb\x88\x77\x66\x55\x44\x33\x22\x11",
			"641c5230f9065c0c686e856c158e5aaf1c138411a57826d12d614754fc5c9823"},
	} {
		b := c.format.Encode(c.owner, c.seq, c.payload)
		sum := sha256.Sum256(b)
		got := hex.EncodeToString(sum[:])
		if got != c.sum || len(b) != c.format.Size || string(b[:len(c.begins)]) != c.begins {
			t.Errorf("%s: %s, begins with %x", c.name, got, b[:64])
		}
		owner, seq, payload, ok := c.format.Decode(b)
		if !ok || owner != c.owner || seq != c.seq || !bytes.Equal(payload[:len(c.payload)], c.payload) {
			t.Errorf("%s reads %+v %d %v", c.name, owner, seq, ok)
		}
		other := c.owner
		other.Key[3]++
		if p := c.format.Newest(other, append(make([]byte, c.format.Size), b...)); p.Valid != 0 {
			t.Errorf("%s is taken for another one's: %+v", c.name, p)
		}
	}
}

// Which of two slots counts, and whether the other one says the same.
func TestNewest(t *testing.T) {
	for _, f := range []Format{records, pages} {
		o := Owner{Key: [16]byte{1}}
		slot := func(seq uint64, text string) []byte { return f.Encode(o, seq, []byte(text)) }
		zero, broken := make([]byte, f.Size), bytes.Repeat([]byte{1}, f.Size)
		for _, c := range []struct {
			name          string
			a, b          []byte
			seq           uint64
			text          string
			valid, broken int
			twice         bool
		}{
			{"nothing", zero, zero, 0, "", 0, 0, false},
			{"the second is newer", slot(2, "old"), slot(3, "new"), 3, "new", 2, 0, false},
			{"the first is newer", slot(4, "new"), slot(3, "old"), 4, "new", 2, 0, false},
			{"a copy", slot(4, "new"), slot(3, "new"), 4, "new", 2, 0, true},
			{"one is torn", broken, slot(3, "new"), 3, "new", 1, 1, false},
			{"both are", broken, broken, 0, "", 0, 2, false},
			{"one was never written", zero, slot(1, "new"), 1, "new", 1, 0, false},
			{"in the other's place", slot(3, "new"), slot(1, "old"), 1, "old", 1, 1, false},
			{"cut off", slot(2, "old"), slot(3, "new")[:f.Size-1], 2, "old", 1, 0, false},
		} {
			p := f.Newest(o, append(bytes.Clone(c.a), c.b...))
			if p.Seq != c.seq || !bytes.HasPrefix(p.Payload, []byte(c.text)) || p.Valid != c.valid || p.Broken != c.broken ||
				p.Twice != c.twice {
				t.Errorf("%s, %s: %d, %d valid, %d broken, twice %v", f.Magic, c.name, p.Seq, p.Valid, p.Broken, p.Twice)
			}
		}
	}
}

// Whatever lies in two slots is read without harm, and one changed bit in a good pair never goes
// unnoticed.
func FuzzSlots(f *testing.F) {
	o := Owner{Key: [16]byte{1}, Page: 2}
	for _, format := range []Format{records, pages} {
		f.Add(format.Encode(o, 2, []byte("x")), uint16(0), byte(0))
		f.Add(append(format.Encode(o, 2, []byte("old")), format.Encode(o, 3, []byte("new"))...), uint16(9000), byte(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, at uint16, flip byte) {
		for _, format := range []Format{records, pages} {
			o := o
			if !format.Pages {
				o.Page = 0
			}
			format.Newest(o, data)
			old := data[:min(len(data), format.Room())]
			good := append(format.Encode(o, 2, old), format.Encode(o, 3, []byte("new"))...)
			good[int(at)%len(good)] ^= flip
			p := format.Newest(o, good)
			if p.Valid == 0 || p.Seq == 3 && !bytes.HasPrefix(p.Payload, []byte("new")) ||
				p.Seq == 2 && !bytes.HasPrefix(p.Payload, old) || p.Seq < 2 || p.Seq > 3 {
				t.Fatalf("slot %d, %q, %d valid after one damaged byte", p.Seq, p.Payload, p.Valid)
			}
			if !format.Pages && p.Seq == 3 && len(p.Payload) != 3 {
				t.Fatalf("a payload of %d bytes", len(p.Payload))
			}
		}
	})
}
