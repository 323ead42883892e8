package replica

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/wire"
)

// trim does a piece of a trim of the chain, beside I/O, when what hides the blocks is durable. What
// it changes is noted first, as for a piece of a purge.
func (r *Replica) trim(s *session, h *wire.Header, from int64) {
	if r.blocks == nil {
		r.replyErr(s, h, errStandby)
		return
	}
	r.white.settle(true, func(code block.Code) {
		if code != block.OK {
			r.reply(s, h, code, wire.ControlReply{Error: "what hides the discarded blocks could not be made durable"})
			return
		}
		r.ops.enqueue(&metaOp{s: s, both: func(w *worker, l *sidecarSet) any { return w.noteTrim(l) }, done: func(v any) {
			t := v.(trimming)
			if t.err != nil || len(t.layers) == 0 {
				r.trimmed(s, h, t.err, -1)
				return
			}
			pages, next := r.blocks.Untrimmed(from)
			// For nobody's session: what fails is to be done again, whoever asks.
			piece := func(w *worker) any { return result{err: w.trim(t.layers, pages)} }
			r.ops.enqueueNext(&metaOp{run: piece, done: func(v any) {
				err := v.(result).err
				if err != nil && r.blocks != nil {
					r.blocks.Retrim(pages)
				}
				r.trimmed(s, h, err, next)
			}})
		}})
	})
}

func (r *Replica) trimmed(s *session, h *wire.Header, err error, next int64) {
	if err != nil {
		r.replyErr(s, h, err)
		return
	}
	r.reply(s, h, block.OK, wire.ControlReply{Trim: &wire.TrimReply{Next: next}})
}

// trimming are the layers that a piece works on.
type trimming struct {
	layers []string
	err    error
}

func (w *worker) noteTrim(l *sidecarSet) (t trimming) {
	if w.files == nil {
		return trimming{err: errStandby}
	}
	if t.layers = w.files.TrimLayers(); len(t.layers) > 0 {
		t.err = w.files.NoteTrim(l.side, t.layers)
	}
	return t
}

func (w *worker) trim(layers []string, pages []chain.DurableWhiteouts) error {
	if w.files == nil {
		return errStandby
	}
	if len(pages) == 0 {
		return nil
	}
	return w.files.Trim(layers, pages)
}
