package wire

import (
	"fmt"

	"ankole.storage/dataplane/block"
)

// ControlRequest is the payload of a Control frame: exactly one field is set, Check aside. Control
// operations are rare; they are carried on the data connection so that they are ordered with the
// writes around them.
type ControlRequest struct {
	// Check, with Snapshot, Revert or Expand: only tell whether it would be refused.
	Check bool `json:"check,omitempty"`
	// SetRecord makes a membership record durable.
	SetRecord *RecordMessage `json:"setRecord,omitempty"`
	// Snapshot rotates the head. The engine has no write in flight.
	Snapshot *SnapshotRequest `json:"snapshot,omitempty"`
	// Describe asks for the chain: names, metadata, sizes.
	Describe *DescribeRequest `json:"describe,omitempty"`
	// Extents asks for the allocated ranges of one layer.
	Extents *ExtentsRequest `json:"extents,omitempty"`
	// Regions asks where the replica may differ from a member that is not there, or from the rest
	// of them.
	Regions *RegionsRequest `json:"regions,omitempty"`
	// BeginRebuild gives the directory the shape of the described chain, marked as rebuilding.
	BeginRebuild *BeginRebuild `json:"beginRebuild,omitempty"`
	// FinishRebuild syncs everything and clears the rebuilding mark.
	FinishRebuild *FinishRebuild `json:"finishRebuild,omitempty"`
	// ClearDirty replaces the dirty log by the listed regions.
	ClearDirty *ClearDirty `json:"clearDirty,omitempty"`
	// RemoveSnapshot, Purge, Trim, Revert and Expand change the chain: see snapshot.go.
	RemoveSnapshot *RemoveSnapshot `json:"removeSnapshot,omitempty"`
	Purge          *PurgeRequest   `json:"purge,omitempty"`
	Trim           *TrimRequest    `json:"trim,omitempty"`
	Revert         *RevertRequest  `json:"revert,omitempty"`
	Expand         *ExpandRequest  `json:"expand,omitempty"`
	// OpenView to HashLock serve scrubs and checksums: see scrub.go.
	OpenView     *OpenView     `json:"openView,omitempty"`
	CloseView    *CloseView    `json:"closeView,omitempty"`
	Verify       *Verify       `json:"verify,omitempty"`
	KeepView     *KeepView     `json:"keepView,omitempty"`
	HashSnapshot *HashSnapshot `json:"hashSnapshot,omitempty"`
	CancelHash   *CancelHash   `json:"cancelHash,omitempty"`
	HashLock     *HashLock     `json:"hashLock,omitempty"`
	// ViewExtents serves readers, ImportMark clones: see reader.go.
	ViewExtents *ViewExtents `json:"viewExtents,omitempty"`
	ImportMark  *ImportMark  `json:"importMark,omitempty"`
	// SetLimits changes what Snapshot refuses.
	SetLimits *SnapshotLimits `json:"setLimits,omitempty"`
	// Ping asks for an answer and nothing else: it shows that the session still stands.
	Ping *PingRequest `json:"ping,omitempty"`
	// Window offers memory for data: see window.go.
	Window *WindowOffer `json:"window,omitempty"`
	// Release passes the directory to another process: see upgrade.go.
	Release *ReleaseRequest `json:"release,omitempty"`
	// Close marks the directory as cleanly closed: the engine is going away and no write is in flight.
	Close *CloseRequest `json:"close,omitempty"`
}

// ControlReply is the payload of the answer. Code in the header tells the result; Error explains
// it.
type ControlReply struct {
	Error string `json:"error,omitempty"`
	// Chain answers Describe: the live chain; Snapshots lists every branch, the head included.
	Chain     *ChainDescription `json:"chain,omitempty"`
	Snapshots []Layer           `json:"snapshots,omitempty"`
	Extents   *ExtentsReply     `json:"extents,omitempty"`
	Purge     *PurgeReply       `json:"purge,omitempty"`
	Trim      *TrimReply        `json:"trim,omitempty"`
	View      *ViewReply        `json:"view,omitempty"`
	Verify    *VerifyReply      `json:"verify,omitempty"`
	Hash      *HashReply        `json:"hash,omitempty"`
	HashLock  *HashLockReply    `json:"hashLock,omitempty"`
	// Absent answers Describe where the replica has an entry of the member asked for.
	Absent  *AbsentReply  `json:"absent,omitempty"`
	Regions *RegionsReply `json:"regions,omitempty"`
}

// SnapshotRequest names the snapshot to take.
type SnapshotRequest struct {
	Name        string            `json:"name"`
	UserCreated bool              `json:"userCreated"`
	Created     string            `json:"created"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// MaxLabels bounds the labels of one snapshot, in bytes as they are sent: a description lists 250
// snapshots twice, with names of 255 bytes, and has to fit into a frame.
const MaxLabels = 1 << 10

// LabelsFit reports whether a snapshot may have these labels.
func LabelsFit(labels map[string]string) bool {
	return len(labels) == 0 || len(Marshal(labels)) <= MaxLabels
}

// Check says why the snapshot cannot be taken, as far as the request tells.
func (r *SnapshotRequest) Check() error {
	if !LabelsFit(r.Labels) {
		return fmt.Errorf("%w: the labels of snapshot %s take %d bytes; at most %d are possible", block.Invalid, r.Name,
			len(Marshal(r.Labels)), MaxLabels)
	}
	return nil
}

// DescribeRequest may ask for the entry of an absent member; a replica's own name for its own.
type DescribeRequest struct {
	Absent string `json:"absent,omitempty"`
	// Branches asks for the snapshots off the live chain too, and opens them for layer requests.
	Branches bool `json:"branches,omitempty"`
}

// FinishRebuild has no parameters.
type FinishRebuild struct{}

// PingRequest has no parameters.
type PingRequest struct{}

// CloseRequest has no parameters.
type CloseRequest struct{}

// ClearDirty is the set of regions that stay marked.
type ClearDirty struct {
	Keep []uint32 `json:"keep"`
}

// ChainDescription is a live chain as one replica describes it to another: layers bottom-up, the
// head last.
type ChainDescription struct {
	// Structure identifies names and order of the snapshots.
	Structure []byte  `json:"structure,omitempty"`
	Size      int64   `json:"size"`
	Layers    []Layer `json:"layers"`
	// HeadEmpty: the head has no block yet.
	HeadEmpty bool `json:"headEmpty,omitempty"`
	// Branches are the snapshots off the live chain, parents first, if they were asked for: their
	// numbers follow those of Layers.
	Branches []Layer `json:"branches,omitempty"`
}

// Layer is one file of a chain.
type Layer struct {
	// Name of the snapshot; empty for the head.
	Name        string            `json:"name"`
	Size        int64             `json:"size"`
	Removed     bool              `json:"removed,omitempty"`
	UserCreated bool              `json:"userCreated,omitempty"`
	Created     string            `json:"created,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	// Allocated bytes, for progress.
	Allocated int64 `json:"allocated"`
	// Parent snapshot name; empty for a bottom layer.
	Parent string `json:"parent,omitempty"`
	// Whiteouts: the layer may hide blocks of those below it.
	Whiteouts bool `json:"whiteouts,omitempty"`
}

// ExtentsRequest asks for the extents of layer Layer from byte Off on.
type ExtentsRequest struct {
	Layer uint32 `json:"layer"`
	Off   int64  `json:"off"`
}

// ExtentsReply lists allocated ranges in order, [start, end) in bytes, 4 KiB aligned. Next is where
// to go on, or -1.
type ExtentsReply struct {
	Ranges [][2]int64 `json:"ranges"`
	// Hides are ranges, multiples of block.MaxTransfer, in which the layer has whiteouts.
	Hides [][2]int64 `json:"hides,omitempty"`
	Next  int64      `json:"next"`
}
