package wire

// OpenView opens a snapshot for frames with the flag AtView, instead of the one that was open. It
// takes memory of the replica until CloseView or the end of the session.
type OpenView struct {
	Snapshot string `json:"snapshot"`
}

// CloseView has no parameters; without an open view it succeeds.
type CloseView struct{}

// ViewReply answers OpenView.
type ViewReply struct {
	// Size of the snapshot in bytes.
	Size int64 `json:"size"`
}

// Verify asks whether what the open view reads in a range, of at most MaxPayload bytes, is what the
// replica's checksums say.
type Verify struct {
	Off int64 `json:"off"`
	Len int64 `json:"len"`
}

// Verdicts of VerifyReply.
const (
	// VerdictUnknown: of something that is read there nothing is known.
	VerdictUnknown = "unknown"
	// VerdictGood: it is what it was when it was hashed.
	VerdictGood = "good"
	// VerdictRotten: it is not, or cannot be read.
	VerdictRotten = "rotten"
)

// VerifyReply answers Verify.
type VerifyReply struct {
	Verdict string `json:"verdict"`
	Rot     []Rot  `json:"rot,omitempty"`
}

// Rot is a piece of a file that is not what it was.
type Rot struct {
	// Snapshot is the one whose file it is.
	Snapshot   string `json:"snapshot"`
	Off        int64  `json:"off"`
	Len        int64  `json:"len"`
	Unreadable bool   `json:"unreadable,omitempty"`
}

// KeepView asks that what the open view reads in a range, of at most MaxPayload bytes, whole
// blocks, stays whatever is written to the file of an older snapshot: what comes from there or from
// further down is written to the view's own file, durably.
type KeepView struct {
	Off int64 `json:"off"`
	Len int64 `json:"len"`
	// Below is the older snapshot.
	Below string `json:"below"`
}

// HashSnapshot asks for one bounded piece of the computation of a snapshot's checksums. The engine
// asks for the next piece when it has the answer, and so decides how fast it goes.
type HashSnapshot struct {
	Snapshot string `json:"snapshot"`
	// Rehash: read the file even if its checksums still hold.
	Rehash bool `json:"rehash,omitempty"`
	// At is the time to record, RFC 3339, UTC.
	At string `json:"at"`
}

// HashReply answers a piece.
type HashReply struct {
	Done bool `json:"done,omitempty"`
	// Waiting: nothing was done, since another checksum is being computed on the replica's disk.
	Waiting bool `json:"waiting,omitempty"`
	// Progress in percent.
	Progress int `json:"progress"`
	// Read is how many bytes of the file the computation has gone through.
	Read int64 `json:"read,omitempty"`
	// Checksum, when done, is the CRC-64 of the file; empty where it could not be read.
	Checksum string `json:"checksum,omitempty"`
	// Reused: it still held, nothing was read. Corrupted: the file disagrees with it.
	Reused    bool  `json:"reused,omitempty"`
	Corrupted bool  `json:"corrupted,omitempty"`
	Rot       []Rot `json:"rot,omitempty"`
}

// CancelHash ends the computation that the session has begun; without one it succeeds.
type CancelHash struct{}

// HashLock asks whether a checksum is being computed on the replica's disk, for whatever volume.
type HashLock struct{}

// HashLockReply answers it.
type HashLockReply struct {
	Locked bool `json:"locked"`
}
