package chain

// MergePiece and PrunePiece are how much a piece of a purge copies and punches at most.
const (
	MergePiece = purgePiece
	PrunePiece = prunePiece
)

// Settle does what comes before an operation for which I/O is held back.
var Settle = (*Chain).settle
