package replica

import (
	"fmt"
	"slices"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/wire"
)

// maxRanges bounds an answer to Extents.
const maxRanges = 4096

// listExtents lists the allocated ranges of a layer, a page at a time. Every page looks at the file
// where the one before it has ended: a file of a terabyte may have a hundred million ranges, and
// nothing is kept between two pages.
func (r *Replica) listExtents(s *session, h *wire.Header, m *wire.ExtentsRequest) {
	number, off := m.Layer, m.Off
	if n := r.blocks.Layers() + r.blocks.Branches(); int(number) >= n || off < 0 {
		r.reply(s, h, block.Invalid,
			wire.ControlReply{Error: fmt.Sprintf("chain has %d layers, no layer %d with an offset %d", n, number, off)})
		return
	}
	r.ops.enqueue(&metaOp{s: s, run: func(w *worker) any {
		file, err := w.files.File(int(number))
		if err != nil {
			return listed{err: err}
		}
		page, err := pageOfFile(file, off, w.files.SizeBytes(), maxRanges)
		if err == nil {
			err = w.addHides(page, int(number), off)
		}
		return listed{page, err}
	}, done: func(v any) {
		res := v.(listed)
		if res.err != nil {
			r.replyErr(s, h, res.err)
			return
		}
		r.reply(s, h, block.OK, wire.ControlReply{Extents: res.page})
	}})
}

// listed is the result of listExtents.
type listed struct {
	page *wire.ExtentsReply
	err  error
}

// pageOfFile lists where a file has data, in whole blocks, from off to size, so many ranges at
// most. It blocks.
func pageOfFile(f disk.File, off, size int64, most int) (*wire.ExtentsReply, error) {
	page := [][2]int64{}
	buf := make([]disk.Extent, 0, disk.ExtentsPerCall)
	for more := true; more && off < size; {
		var err error
		if buf, more, err = f.Extents(off, buf[:0]); err != nil {
			return nil, err
		}
		if len(buf) == 0 {
			break
		}
		for _, e := range buf {
			if e.Off >= size {
				return &wire.ExtentsReply{Ranges: page, Next: -1}, nil
			}
			beg, end := widen(e.Off, min(e.Len, size-e.Off))
			switch n := len(page); {
			case n > 0 && page[n-1][1] >= beg:
				page[n-1][1] = max(page[n-1][1], end)
			case n == most:
				return &wire.ExtentsReply{Ranges: page, Next: beg}, nil
			default:
				page = append(page, [2]int64{beg, end})
			}
			off = e.Off + e.Len
		}
	}
	return &wire.ExtentsReply{Ranges: page, Next: -1}, nil
}

// addHides adds where the layer has whiteouts to a page that begins at off, and cuts the page where
// these are too many.
func (w *worker) addHides(page *wire.ExtentsReply, number int, off int64) error {
	end := page.Next
	if end < 0 {
		end = w.files.SizeBytes()
	}
	hides, next, err := w.files.Hides(number, block.MaxTransfer, off, end, maxRanges)
	if err != nil {
		return err
	}
	page.Hides = hides
	if next < end {
		page.Next = next
		page.Ranges = slices.DeleteFunc(page.Ranges, func(r [2]int64) bool { return r[0] >= next })
	}
	return nil
}
