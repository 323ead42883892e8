package wire

import "ankole.storage/dataplane/block"

// LayerSums is the layout of an answer to LayerHash: a bitmap with a bit for each 4 KiB block of a
// MaxTransfer that the file holds, a hash of each chunk of SumChunk bytes, in which blocks that the
// file does not hold are zeroes, and another bitmap: blocks of the layers below that this one
// hides, if the file does not hold them.
const (
	// SumChunk is what one hash covers: so little that a small write does not make much to copy.
	SumChunk = 64 << 10
	// SumSize is the size of a hash.
	SumSize = 16
	// SumBlocks is the size of a bitmap.
	SumBlocks = block.MaxTransfer / block.Size / 8
	// SumChunks is how many chunks there are.
	SumChunks = block.MaxTransfer / SumChunk
	// WhiteoutsAt is where the second bitmap begins, and LayerSumsSize the size of the whole answer.
	WhiteoutsAt   = SumBlocks + SumChunks*SumSize
	LayerSumsSize = WhiteoutsAt + SumBlocks
)

// RecordRef names a membership record.
type RecordRef struct {
	Epoch      uint64 `json:"epoch"`
	Generation uint64 `json:"generation"`
}

// AbsentReply is what a replica knows of the difference to a member, but for the regions.
type AbsentReply struct {
	Since RecordRef `json:"since"`
	// Before is the agreed record that Since was to replace, if Since was never agreed.
	Before RecordRef `json:"before"`
	// Structure identifies the live chain of that time.
	Structure []byte `json:"structure"`
	// First is the snapshot that the head of that time became, empty while it is the head; Gone: it
	// is neither.
	First string `json:"first,omitempty"`
	Gone  bool   `json:"gone,omitempty"`
	// Changed are snapshots made or changed since, volume-head for the head; AllChanged: all.
	Changed    []string `json:"changed,omitempty"`
	AllChanged bool     `json:"allChanged,omitempty"`
}

// RegionsRequest names the member.
type RegionsRequest struct {
	Member string `json:"member"`
}

// RegionsReply is where the replica may differ: what its entry of the member says, and its dirty
// log.
type RegionsReply struct {
	// Bits is a bitmap whose bits stand for 4 MiB << Shift.
	Shift uint8  `json:"shift,omitempty"`
	Bits  []byte `json:"bits,omitempty"`
	// Dirty are the marked regions of 4 MiB; All: every region, or nothing is known about the member.
	Dirty []uint32 `json:"dirty,omitempty"`
	All   bool     `json:"all,omitempty"`
}

// BeginRebuild is the chain a target is to have, and what becomes of the files it has: snapshots of
// the same name stay, others go.
type BeginRebuild struct {
	ChainDescription
	// HeadBecomes is the snapshot that the target's head turns into. NewHead gives the head up.
	HeadBecomes string `json:"headBecomes,omitempty"`
	NewHead     bool   `json:"newHead,omitempty"`
	// Untouched are snapshots that nothing will be written to.
	Untouched []string `json:"untouched,omitempty"`
	// Compared are snapshots that stay, or that the head turns into, and are made equal wherever
	// they differ, not in known regions only; volume-head is the head.
	Compared []string `json:"compared,omitempty"`
}
