// Package twoslot has the bytes of records that are overwritten in place: in two slots by turns,
// each with a sequence number and a checksum, so that a torn write leaves the record from before.
//
// There are two layouts. A record is alone in its file and may be of any length that a slot has
// room for; its checksum is a SHA-256. A page is one of many in a file; its content has a fixed
// length, and its checksum, an XXH3-128 that pages without slots have too (Seal), depends on the
// page's number, so that a page in another one's place is noticed. docs/design/format-replica.md
// has the byte offsets.
//
// A slot belongs to whoever has its key, and lies in the slot that its sequence number says. When
// which of the two is written, and synced, is the caller's matter.
package twoslot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"
)

// version is the format version of every slot.
const version = 1

// Offsets in a slot. A page has its key's file at sumAt, and its content at contentAt.
const (
	magicSize  = 8
	versionAt  = 8
	numberAt   = 12 // a record's length, or a page's number
	sequenceAt = 16
	keyAt      = 24
	sumAt      = 40
	contentAt  = 64
	// PayloadAt is how much of a slot is not a record's payload.
	PayloadAt = 72
)

// SealSize is the size of the checksum at the end of a page.
const SealSize = 16

// Format is one kind of slots.
type Format struct {
	// Magic has 8 bytes.
	Magic string
	// Size is that of a slot.
	Size int
	// Pages: the layout of pages.
	Pages bool
}

// Owner says whose a slot is.
type Owner struct {
	Key [16]byte
	// File and Page are of pages only.
	File uint64
	Page uint32
}

// Room is how long a payload may be.
func (f Format) Room() int {
	if f.Pages {
		return f.Size - SealSize - contentAt
	}
	return f.Size - PayloadAt
}

// Encode renders a slot.
func (f Format) Encode(o Owner, seq uint64, payload []byte) []byte {
	if len(f.Magic) != magicSize || len(payload) > f.Room() {
		panic(fmt.Sprintf("twoslot: slot %q with a payload of %d bytes", f.Magic, len(payload)))
	}
	b := make([]byte, f.Size)
	copy(b, f.Magic)
	binary.LittleEndian.PutUint32(b[versionAt:], version)
	binary.LittleEndian.PutUint64(b[sequenceAt:], seq)
	copy(b[keyAt:], o.Key[:])
	if f.Pages {
		binary.LittleEndian.PutUint32(b[numberAt:], o.Page)
		binary.LittleEndian.PutUint64(b[sumAt:], o.File)
		copy(b[contentAt:], payload)
		Seal(b, uint64(o.Page))
		return b
	}
	binary.LittleEndian.PutUint32(b[numberAt:], uint32(len(payload)))
	copy(b[PayloadAt:], payload)
	sum := sumOf(b)
	copy(b[sumAt:], sum[:])
	return b
}

// sumOf covers the whole slot with the sum's own field as zeroes.
func sumOf(b []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(b[:sumAt])
	var zero [sha256.Size]byte
	h.Write(zero[:])
	h.Write(b[PayloadAt:])
	return [sha256.Size]byte(h.Sum(nil))
}

// Decode checks a slot and says whose it is, its sequence number and its payload, which is a part
// of b: of a page all the room that there is. ok is false for anything that was not written whole.
func (f Format) Decode(b []byte) (o Owner, seq uint64, payload []byte, ok bool) {
	if len(b) != f.Size || string(b[:magicSize]) != f.Magic || binary.LittleEndian.Uint32(b[versionAt:]) != version {
		return Owner{}, 0, nil, false
	}
	n := binary.LittleEndian.Uint32(b[numberAt:])
	if f.Pages {
		o.Page, o.File = n, binary.LittleEndian.Uint64(b[sumAt:])
		payload, ok = b[contentAt:len(b)-SealSize], Sealed(b, uint64(n))
	} else if int64(n) <= int64(f.Room()) {
		sum := sumOf(b)
		payload, ok = b[PayloadAt:PayloadAt+int(n)], bytes.Equal(sum[:], b[sumAt:PayloadAt])
	}
	if !ok {
		return Owner{}, 0, nil, false
	}
	copy(o.Key[:], b[keyAt:])
	return o, binary.LittleEndian.Uint64(b[sequenceAt:]), payload, true
}

// Pair is what two slots say together.
type Pair struct {
	// Seq and Payload are those of the valid slot with the higher sequence number.
	Seq     uint64
	Payload []byte
	// Valid counts slots that are whole, the owner's, and in their place; Broken those that are not,
	// and not zeroes either.
	Valid, Broken int
	// Twice: both have the same payload.
	Twice bool
}

// Newest judges two slots, one after the other. What is missing of them is as what is not whole.
func (f Format) Newest(o Owner, data []byte) (p Pair) {
	for i := range 2 {
		if len(data) < (i+1)*f.Size {
			break
		}
		b := data[i*f.Size:][:f.Size]
		own, seq, payload, whole := f.Decode(b)
		switch {
		case !whole || own != o || seq%2 != uint64(i):
			if !isZero(b) {
				p.Broken++
			}
			continue
		case p.Valid == 1:
			p.Twice = bytes.Equal(payload, p.Payload)
		}
		if p.Valid++; p.Valid == 1 || seq > p.Seq {
			p.Seq, p.Payload = seq, payload
		}
	}
	return p
}

func isZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}

// Seal puts a page's checksum at its end.
func Seal(page []byte, number uint64) {
	s := sealOf(page, number)
	copy(page[len(page)-SealSize:], s[:])
}

// Sealed tells whether a page is as it was sealed with that number.
func Sealed(page []byte, number uint64) bool {
	return sealOf(page, number) == [SealSize]byte(page[len(page)-SealSize:])
}

func sealOf(page []byte, number uint64) [SealSize]byte {
	return xxh3.Hash128Seed(page[:len(page)-SealSize], number).Bytes()
}
