package chain

// MergePiece and PrunePiece are how much a piece of a purge copies and punches at most.
const (
	MergePiece = purgePiece
	PrunePiece = prunePiece
)
