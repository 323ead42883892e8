package quorum

// checkFollows: whoever has announced whom it follows can trust that nobody of an epoch in between
// ever acknowledges anything.
func (w *world) checkFollows() {
	for k, e := range w.engines {
		for i, o := range w.engines {
			if between := int(o.core.Epoch()); e.follows >= 0 && o.acked != 0 && between > e.follows &&
				between < int(e.core.Epoch()) {
				w.fail("e%d follows epoch %s, and e%d has acknowledged writes under epoch %s", k,
					EpochText(uint64(e.follows)), i, EpochText(o.core.Epoch()))
			}
		}
	}
}

// ackedBefore are the writes that engines of epochs up to epoch have acknowledged.
func (w *world) ackedBefore(epoch uint64) uint16 {
	var m uint16
	for _, e := range w.engines {
		if e.core.Epoch() <= epoch {
			m |= e.acked
		}
	}
	return m
}
