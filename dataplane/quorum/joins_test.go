package quorum

func (w *world) rebuild(k, i int) {
	w.limits.joins--
	if w.promise(k, i) {
		d := &w.disks[i]
		d.rec, d.rebuilding, d.has = Record{}, true, 0
		w.engines[k].links[i] = link{state: open, confirmed: w.now}
		w.engines[k].wo |= 1 << i
	}
}

func (w *world) vote(k, i int) {
	w.limits.votes--
	if e := w.engines[k]; w.promise(k, i) {
		e.links[i] = link{state: open, confirmed: w.now}
		e.core.Reached(replicaName(i))
	}
}

func (w *world) rebuilt(k, i int) {
	e, d := w.engines[k], &w.disks[i]
	for s := range w.disks {
		if e.rw&(1<<s) != 0 && w.disks[s].session == k {
			d.has |= w.disks[s].has
			d.rebuilding = false
			e.core.Join(replicaName(i))
			return
		}
	}
	w.lost(k, i)
}

// loseSecond leaves a volume of two with the record that replaces the second one on the first, and
// nobody has agreed to it. With takeovers the engine is replaced by one in its place that does not
// hear the witness.
func (w *world) loseSecond() {
	w.hangUp(0, 1)
	w.lost(0, 1)
	w.act(0)
	w.deliver(0, 0, false)
	w.act(0)
	if w.limits.takeover {
		w.start(w.engines[0].im)
		w.engines[1].question, w.engines[1].retry = nil, true
		w.engines[1].core.WitnessUnavailable()
		w.act(1)
	}
}
