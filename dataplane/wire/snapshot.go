package wire

// RemoveSnapshot marks a snapshot as removed: the next purge gives its space back.
type RemoveSnapshot struct {
	Name string `json:"name"`
	// Now: one on which no other stands goes at once.
	Now bool `json:"now,omitempty"`
}

// PurgeRequest is one bounded piece of a purge. The engine asks for the next piece when it has the
// answer, so that it decides how fast a purge goes and when it pauses.
type PurgeRequest struct {
	// Begin marks the snapshots that the system made as removed and plans anew; nothing is merged yet.
	Begin bool `json:"begin,omitempty"`
}

// PurgeReply answers a piece.
type PurgeReply struct {
	// Done: nothing is left to do. Changed: the chain has another shape than before the piece.
	Done    bool `json:"done,omitempty"`
	Changed bool `json:"changed,omitempty"`
	// Progress in percent.
	Progress int `json:"progress"`
}

// TrimRequest is one bounded piece of a trim: what the head's whiteouts hide is given back out of
// the snapshots below it that are marked as removed. It is beside I/O.
type TrimRequest struct {
	// From is 0, or Next of the piece before.
	From int64 `json:"from,omitempty"`
}

// TrimReply answers a piece.
type TrimReply struct {
	// Next is where to go on, -1 if nothing is left.
	Next int64 `json:"next"`
}

// RevertRequest makes the volume's content what it was at a snapshot. The engine has no request in
// flight.
type RevertRequest struct {
	Name    string `json:"name"`
	Created string `json:"created"`
}

// ExpandRequest grows the volume. The engine has no write in flight. A replica that has the size
// already succeeds.
type ExpandRequest struct {
	Size    int64  `json:"size"`
	Created string `json:"created"`
}

// SnapshotLimits bound the snapshots of a volume.
type SnapshotLimits struct {
	// MaxCount is 2 to 250, MaxSize bytes, 0 for no limit.
	MaxCount int   `json:"maxCount"`
	MaxSize  int64 `json:"maxSize"`
}
