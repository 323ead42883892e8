// Package block is the vocabulary of the data path: what can be asked of a volume, how it can end,
// and the sizes everything agrees on. It imports nothing of this module.
package block

import "fmt"

// Sizes shared by every part of the data path.
const (
	// Size is the grain of the block map, of write ordering and of rebuild: 4 KiB, as in the
	// replica format.
	Size = 4096
	// SectorSize is the smallest addressable unit of a volume.
	SectorSize = 512
	// MaxTransfer bounds the payload of one request. Frontends split larger ones.
	MaxTransfer = 1 << 20
)

// Kind is what a request asks for.
type Kind uint8

// Request kinds.
const (
	Read Kind = iota + 1
	Write
	// Flush completes when every write completed before it was issued is on stable storage.
	Flush
	// Discard gives space back; the range may read as anything consistent across replicas afterwards.
	Discard
	// WriteZeroes makes the range read zero.
	WriteZeroes
)

// String names the kind as it appears in logs and metrics.
func (k Kind) String() string {
	switch k {
	case Read:
		return "read"
	case Write:
		return "write"
	case Flush:
		return "flush"
	case Discard:
		return "discard"
	case WriteZeroes:
		return "write-zeroes"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Code is how a request ended. It travels on the wire, so values are fixed for ever.
type Code uint8

// Result codes.
const (
	OK Code = iota
	// Invalid: the request itself is wrong (range, alignment, size).
	Invalid
	// IOError: the medium failed.
	IOError
	// NoSpace: the file system of the replica is full.
	NoSpace
	// Fenced: a newer epoch exists; the sender must stop.
	Fenced
	// Stale: the replica does not belong to the generation asked for.
	Stale
	// Unavailable: not now (no replica, suspended, shutting down).
	Unavailable
	// Refused: identity (volume UUID, secret) does not match.
	Refused
	// Corrupt: a checksum did not match.
	Corrupt
	// NotFound: the named thing does not exist.
	NotFound
	// Exists: the named thing exists already.
	Exists
	// LimitReached: a documented bound (snapshot count or size) would be passed.
	LimitReached
)

var codeText = [...]string{"ok", "invalid request", "i/o error", "no space left", "fenced by a newer engine",
	"stale generation", "unavailable", "identity refused", "checksum mismatch", "not found", "already exists",
	"limit reached"}

// String is the code's text in messages.
func (c Code) String() string {
	if int(c) < len(codeText) {
		return codeText[c]
	}
	return fmt.Sprintf("code(%d)", uint8(c))
}

// Error makes a Code usable as an error; OK must not be used as one.
func (c Code) Error() string { return c.String() }
