package replica

import (
	"fmt"
	"slices"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
)

func (r *Replica) setRecord(s *session, h *wire.Header, m *wire.RecordMessage) {
	old := quorum.Record{Epoch: r.record.Epoch, Generation: r.record.Generation}
	next := quorum.Record{Epoch: m.Epoch, Generation: m.Generation, Members: m.Members}
	switch {
	case m.VolumeUUID != r.cfg.VolumeUUID:
		r.reply(s, h, block.Refused, wire.ControlReply{Error: "record of another volume"})
		return
	case m.Epoch != s.epoch || !next.Valid() || !(next.Has(r.cfg.Member) || slices.Contains(m.Replaces, r.cfg.Member)):
		r.reply(s, h, block.Invalid,
			wire.ControlReply{Error: fmt.Sprintf("record %s in a session of epoch %d with %s", next, s.epoch, r.cfg.Member)})
		return
	case next.Compare(old) < 0:
		r.reply(s, h, block.Stale,
			wire.ControlReply{Error: fmt.Sprintf("record %s is older than %d in epoch %d", next, old.Generation, old.Epoch)})
		return
	}
	rec := r.record
	// A record that replaces this replica is stored as well: whoever finds it later knows that
	// others have gone on.
	rec.Epoch, rec.Generation, rec.State = m.Epoch, m.Generation, chain.MemberRW
	rec.Members, rec.Replaces, rec.Agreed, rec.Anew = nil, m.Replaces, m.Agreed, m.Accepted
	for _, name := range m.Members {
		rec.Members = append(rec.Members, chain.Member{Name: name, Flags: memberFlags(m)})
	}
	r.ops.enqueue(&metaOp{s: s, both: func(w *worker, l *sidecarSet) any {
		return result{err: w.files.WriteRecord(l.side, rec)}
	}, done: func(v any) {
		err := v.(result).err
		if err == nil {
			r.record, r.record.Anew = rec, false
		}
		r.replyErr(s, h, err)
	}})
}

// memberFlags are what the members of a record are stored with.
func memberFlags(m *wire.RecordMessage) uint8 {
	if m.Accepted && !m.Agreed {
		return quorum.AcceptedFlag
	}
	return 0
}

// recordMessage is the record as it is told, nil if it names no set.
func (r *Replica) recordMessage(rec *chain.Record) *wire.RecordMessage {
	if rec.Generation == 0 {
		return nil
	}
	m := &wire.RecordMessage{VolumeUUID: r.cfg.VolumeUUID, Epoch: rec.Epoch, Generation: rec.Generation,
		Replaces: rec.Replaces, Agreed: rec.Agreed}
	for _, member := range rec.Members {
		m.Members = append(m.Members, member.Name)
		m.Accepted = m.Accepted || member.Flags&quorum.AcceptedFlag != 0
	}
	return m
}
