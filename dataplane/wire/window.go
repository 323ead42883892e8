package wire

import "ankole.storage/dataplane/block"

// A window is memory that an engine shares with a replica on its machine, for one session. It has
// slots, each for the data of one request, in which offset 0 is that of a block. docs/design/
// format-wire.md has who may do what with a slot.
const (
	// WindowSlots is how many slots a window has.
	WindowSlots = 64
	// ReaderSlots is how many of them a reader may use at a time.
	ReaderSlots = 8
	// SlotSize is how far apart they begin: a page that is not used, and the data. The page is there
	// so that a buffer of the arena is one slot.
	SlotSize = 4096 + block.MaxTransfer
	// WindowSize is the size of a window in bytes. Pages that are not used take no memory.
	WindowSize = WindowSlots * SlotSize
	// TokenSize is the size of what an offer is recognised by.
	TokenSize = 32
)

// WindowOffer asks the replica to map a window: descriptor FD of process PID, as that process
// numbers itself. Token are the first bytes of the file.
type WindowOffer struct {
	PID   int    `json:"pid"`
	FD    int    `json:"fd"`
	Token []byte `json:"token"`
}

// Shares reports whether frames of the type may have the flag Shared.
func (t Type) Shares() bool {
	return t == Read || t == Write || t == LayerRead || t == LayerWrite
}
