package chain

// Judge says what checksums tell about single blocks that a chain of At reads, for a repair that
// chooses between two replicas. Verdicts are per piece (SumPiece) of each file. It must not run
// beside metadata operations.
type Judge struct {
	files  *ViewFiles
	blocks *Blocks
	// pieces are the verdicts about the piece that was asked about last, by layer.
	piece  uint32
	pieces map[int]Verdict
}

// LayerVerdict is what a file's own checksums say of a piece of it.
type LayerVerdict struct {
	// Snapshot is the name of the layer's snapshot, HeadName for the head.
	Snapshot string
	Verdict  Verdict
	// Read: some of the blocks are read from it.
	Read bool
}

// NewJudge begins to judge what c, which At has returned, reads. Close gives it back, before c.
func NewJudge(c *Chain) *Judge {
	return &Judge{files: &ViewFiles{c: c.Files, at: c.Files, sums: map[string]openedSums{}}, blocks: c.Blocks}
}

// Close gives back what it holds.
func (j *Judge) Close() error { return j.files.dropSums() }

// Layers judges the files that blocks of one piece are read from, and those above in the chain,
// which hide what is read if they are as they were: from the lowest that is read up to the newest.
// blocks are offsets in bytes. A block that is in no file lies below all.
func (j *Judge) Layers(blocks []int64) ([]LayerVerdict, error) {
	number := uint32(blocks[0] / SumPiece)
	if j.pieces == nil || j.piece != number {
		j.piece, j.pieces = number, map[int]Verdict{}
	}
	where := j.blocks.Where(blocks[0], blockSize)
	read := map[int]bool{}
	for _, off := range blocks {
		read[int(where.at(off/blockSize))] = true
	}
	var out []LayerVerdict
	at := j.files.at
	for i := at.bottomIndex(); i < len(at.layers); i++ {
		if len(out) == 0 && !read[i] && !read[inNone] && !(at.backing && read[1]) {
			continue // it is below everything that is read
		}
		v, err := j.verdict(i, number)
		if err != nil {
			return nil, err
		}
		out = append(out, LayerVerdict{Snapshot: displayName(at.layers[i].name), Verdict: v, Read: read[i]})
	}
	return out, nil
}

func (j *Judge) verdict(i int, number uint32) (Verdict, error) {
	if v, ok := j.pieces[i]; ok {
		return v, nil
	}
	v := VerdictUnknown
	known, bad, err := j.files.verifyPiece(&j.files.at.layers[i], number)
	switch {
	case err != nil:
		return v, err
	case bad != nil:
		v = VerdictRotten
	case known:
		v = VerdictGood
	}
	j.pieces[i] = v
	return v, nil
}

// From names the snapshot whose file a block is read from, HeadName for the head's and "" for none.
func (j *Judge) From(off int64) string {
	where := j.blocks.Where(off, blockSize)
	i := int(where.at(off / blockSize))
	if i < j.files.at.bottomIndex() {
		return ""
	}
	return displayName(j.files.at.layers[i].name)
}
