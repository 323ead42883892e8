package engine

import "ankole.storage/dataplane/wire"

// A replica tells by itself when files that it has in use have lost their names: what is in them
// goes with its process. One of several is dropped at once, since it does not keep what it
// acknowledges; the only one is kept, and writes them anew.

// noticed takes in what a replica tells by itself.
func (l *link) noticed(p []byte) error {
	var m wire.NoticeMessage
	if err := wire.Unmarshal(p, &m); err != nil {
		return err
	}
	if l.lost == m.Lost {
		return nil
	}
	if l.lost == "" {
		l.e.event("replica-files-lost", l.addr, m.Lost)
	}
	l.lost, l.e.changed = m.Lost, true
	return nil
}

// dropLost drops the replicas that have lost files, the last one that has everything excepted.
func (k *links) dropLost() {
	for _, l := range k.all {
		if l != nil && l.lost != "" && k.e.serving && (l.mode == RW || l.mode == WO) && k.spare(l) {
			why := l.lost
			l.lost = ""
			l.fail(why)
		}
	}
}
