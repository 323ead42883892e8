// Package wire is the protocol between an engine and its replicas: how frames look and how a
// connection moves them.
//
// A connection carries frames of a 64-byte header and an optional payload in both directions. The
// engine proves that it knows the volume's secret, the replica greets, the engine says hello, and
// from then on the engine sends requests with identifiers of its choice and the replica answers
// each once, in any order. Up to the hello header and payload carry CRC-32C checksums, after it a
// tag under a key of the session (session.go). A mismatch ends the connection, since nothing after
// it can be trusted. docs/design/format-wire.md has the format in full.
//
// Frame (this file) is the codec, Conn (conn.go) the part of a step core that receives and sends
// frames in batches, the handshake is in hello.go and the rare control messages in control.go.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"ankole.storage/dataplane/block"
)

// Version is the newest protocol version this code speaks; MinVersion the oldest. A replica picks
// the highest that both know. Version 6, the first in which the engine begins, has no peers of
// earlier versions.
const (
	Version    = 6
	MinVersion = 6
)

// HeaderSize is the size of an encoded header.
const HeaderSize = 64

// magic opens every frame without a tag, "AnkW"; taggedMagic every frame with one, "AnkS".
const (
	magic       = 0x576b6e41
	taggedMagic = 0x536b6e41
)

// MaxPayload bounds the payload of a frame: one block.MaxTransfer. Control payloads are bounded by
// the same.
const MaxPayload = block.MaxTransfer

// Type is what a frame asks for or answers.
type Type uint8

// Frame types. Values are fixed by the format.
const (
	// Greeting is the replica's answer to an Initiation; its payload is a GreetingMessage.
	Greeting Type = iota + 1
	// Hello is the engine's answer to that, and the replica's answer to it.
	Hello
	Read
	Write
	WriteZeroes
	Discard
	Flush
	// MarkDirty makes the regions listed in the payload durable in the replica's dirty log.
	MarkDirty
	// Control carries a JSON message for a rare operation; see control.go.
	Control
	// LayerRead and LayerWrite address one file of the chain by index instead of the resolved
	// volume: rebuild.
	LayerRead
	LayerWrite
	// Hash asks for the XXH3-128 hash of the resolved content of a range; the answer's payload is
	// 16 bytes.
	Hash
	// LayerHash asks what one file of the chain holds in a range: which blocks, and hashes of them;
	// see LayerSums.
	LayerHash
	// LayerPunch makes holes in one file of a rebuild target, with whiteouts if the flag says so.
	LayerPunch
	// Notice is a word of the replica that answers nothing, for an engine whose hello asked for it;
	// its payload is a NoticeMessage.
	Notice
	// Initiation is the first frame of a connection, from the engine; its payload is an
	// InitiationMessage with a proof. Its type, and all of a header with a checksum, are the same in
	// every later version.
	Initiation
	typeEnd
)

var typeNames = [...]string{"?", "greeting", "hello", "read", "write", "write-zeroes", "discard", "flush", "mark-dirty",
	"control", "layer-read", "layer-write", "hash", "layer-hash", "layer-punch",
	"notice", "initiation"}

// String names the type in traces and errors.
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// Flags of a frame.
const (
	// Response marks an answer.
	Response uint8 = 1 << iota
	// FUA asks that the data be on stable storage before the answer.
	FUA
	// ToTarget marks a write that a rebuild copies: the replica counts it apart.
	ToTarget
	// AtView marks a read, write or hash of the snapshot that was opened with OpenView: a scrub's.
	// A write repairs.
	AtView
	// Whiteout, of LayerPunch: the hole hides what is below it. Without it nothing there does any
	// more.
	Whiteout
	// Shared, of Read, Write, LayerRead and LayerWrite: the data is in slot Header.Slot of the
	// session's window, and not behind the header. An answer has the flag if the request has it.
	Shared
)

// Header is a decoded frame header.
type Header struct {
	Type  Type
	Flags uint8
	// Code is the result in a response.
	Code block.Code
	// Slot of the session's window, with the flag Shared.
	Slot uint8
	// ID is chosen by the requester; the response repeats it.
	ID uint64
	// Epoch of the sender's session. The replica refuses frames of another epoch than the
	// connection's.
	Epoch uint64
	// Off and Len are the range in bytes. Len of a read is the number of bytes wanted.
	Off int64
	Len int64
	// Payload is the number of payload bytes that follow; Sum is their CRC-32C in a frame without a
	// tag.
	Payload uint32
	Sum     uint32
	// Layer is the chain index in LayerRead, LayerWrite, LayerHash and LayerPunch, bottom layer 0.
	Layer uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the checksum used for payloads: CRC-32C (RFC 3720).
func Sum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// ErrFrame says that received bytes are no valid frame; the connection must be closed.
var ErrFrame = errors.New("wire: invalid frame")

// encode writes what frames with and without a tag have at the same place.
func (h *Header) encode(p []byte, magic uint32) {
	_ = p[HeaderSize-1]
	le := binary.LittleEndian
	le.PutUint32(p[0:], magic)
	p[4], p[5], p[6], p[7] = byte(h.Type), h.Flags, byte(h.Code), h.Slot
	le.PutUint64(p[8:], h.ID)
	le.PutUint64(p[16:], h.Epoch)
	le.PutUint64(p[24:], uint64(h.Off))
	le.PutUint64(p[32:], uint64(h.Len))
	le.PutUint32(p[40:], h.Payload)
}

// Encode writes h with its checksum into p, which must have HeaderSize bytes.
func (h *Header) Encode(p []byte) {
	h.encode(p, magic)
	le := binary.LittleEndian
	le.PutUint32(p[44:], h.Sum)
	le.PutUint32(p[48:], h.Layer)
	le.PutUint64(p[52:], 0)
	le.PutUint32(p[60:], Sum(p[:60]))
}

// EncodeTagged writes h into p, all but the tag.
func (h *Header) EncodeTagged(p []byte) {
	h.encode(p, taggedMagic)
	binary.LittleEndian.PutUint32(p[44:], h.Layer)
}

// Decode reads a header from p. It checks everything that does not depend on the session: magic,
// checksum, type, ranges and sizes. The tag of one that is tagged is not looked at.
func (h *Header) Decode(p []byte) (tagged bool, err error) {
	_ = p[HeaderSize-1]
	le := binary.LittleEndian
	*h = Header{
		Type: Type(p[4]), Flags: p[5], Code: block.Code(p[6]), Slot: p[7],
		ID: le.Uint64(p[8:]), Epoch: le.Uint64(p[16:]),
		Off: int64(le.Uint64(p[24:])), Len: int64(le.Uint64(p[32:])),
		Payload: le.Uint32(p[40:]),
	}
	switch m := le.Uint32(p[0:]); {
	case m == taggedMagic:
		h.Layer = le.Uint32(p[44:])
	case m != magic:
		return false, fmt.Errorf("%w: magic %#x", ErrFrame, m)
	case le.Uint32(p[60:]) != Sum(p[:60]):
		return false, fmt.Errorf("%w: header checksum", ErrFrame)
	default:
		h.Sum, h.Layer = le.Uint32(p[44:]), le.Uint32(p[48:])
	}
	switch {
	case h.Type == 0 || h.Type >= typeEnd:
		err = fmt.Errorf("%w: unknown type %d", ErrFrame, h.Type)
	case h.Payload > MaxPayload:
		err = fmt.Errorf("%w: %s payload of %d bytes", ErrFrame, h.Type, h.Payload)
	case h.Off < 0 || h.Len < 0 || h.Off+h.Len < 0:
		err = fmt.Errorf("%w: %s range %d+%d", ErrFrame, h.Type, h.Off, h.Len)
	}
	return le.Uint32(p[0:]) == taggedMagic, err
}

// IsResponse reports whether the frame is an answer.
func (h *Header) IsResponse() bool { return h.Flags&Response != 0 }

// Answer returns the header of a response to h.
func (h *Header) Answer(code block.Code) Header {
	return Header{Type: h.Type, Flags: Response | h.Flags&Shared, Code: code, Slot: h.Slot, ID: h.ID, Epoch: h.Epoch,
		Off: h.Off, Len: h.Len, Layer: h.Layer}
}
