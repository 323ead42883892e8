package chain

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"ankole.storage/dataplane/disk"
)

// A layer's .meta names its whiteout file by a random number. A rotation gives the snapshot the
// number that the head had, a merge the number of a new file, and both are committed by what
// commits them anyway: the file has no name that would have to follow. Files that no .meta names
// are strays.

const (
	// whiteoutPrefix and 16 hexadecimal digits are the name of a whiteout file.
	whiteoutPrefix = "ankole.whiteouts-"
	// whiteoutKey is the key in a layer's .meta that has these digits, and the one in volume.meta
	// that binds all of them.
	whiteoutKey = "AnkoleWhiteouts"
)

// whiteoutFiles are the files of whiteouts of all layers: which there are, by their names in the
// layers' .meta, and which are damaged. What one of them holds says the whiteoutFile of a layer
// that is open.
//
// Its own are the names of these files, which it makes and removes with the entries in .meta, and
// damaged.
type whiteoutFiles struct {
	*directory
	meta *meta
	// damaged are whiteouts that were found damaged when the directory was opened.
	damaged []whiteoutDamage
}

// whiteoutName is the file of a number in a layer's .meta.
func whiteoutName(number string) string { return whiteoutPrefix + number }

// whiteoutNumber reads a layer's number.
func whiteoutNumber(s string) (uint64, bool) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(b), true
}

// whiteoutKeyOf is volume.meta's key, zero where there is none: then whatever whiteouts there are
// hide nothing.
func (v *volumeMeta) whiteoutKey() (key Stamp) {
	if b, err := hex.DecodeString(v.AnkoleWhiteouts); err == nil && len(b) == len(key) {
		copy(key[:], b)
	}
	return key
}

// open opens the whiteouts of a layer, nil if it has none. A file that is missing although
// a .meta names it is damage that no crash leaves.
func (h *whiteoutFiles) open(layer string, mode disk.Mode) (*whiteoutFile, error) {
	d, key := h.meta.disks[layer], h.meta.vm.whiteoutKey()
	if d == nil || d.whiteouts == "" || key == (Stamp{}) {
		return nil, nil
	}
	number, ok := whiteoutNumber(d.whiteouts)
	if !ok {
		return nil, fmt.Errorf("%w: %s%s: %s is %q", ErrCorrupt, layer, metaSuffix, whiteoutKey, d.whiteouts)
	}
	f, err := h.fs.Open(h.path(whiteoutName(d.whiteouts)), mode|disk.Direct)
	if isNotFound(err) {
		h.note(layer, -1)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if mode&disk.ReadOnly == 0 {
		// What a process that was killed has written is taken for durable from here on: the other
		// slot is written next.
		if err := h.syncFile(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return &whiteoutFile{file: f, id: whiteoutID{key, number}}, nil
}

// whiteoutDamage is a page that says nothing, or -1 for a file that is missing.
type whiteoutDamage struct {
	layer string
	page  int64
}

// note notes that what a layer hid is not known.
func (h *whiteoutFiles) note(layer string, page int64) {
	d := whiteoutDamage{layer, page}
	if slices.Contains(h.damaged, d) {
		return
	}
	h.damaged = append(h.damaged, d)
	h.log.Error("whiteouts are damaged: discarded blocks may show old content; the replica has to be rebuilt",
		"dir", h.dir,
		"layer", layer, "page", page)
}

// judge notes a page that is damaged. One that only cannot be read refuses the directory, as a
// record does: the next attempt may read it, and damage would cost the record, for ever.
func (h *whiteoutFiles) judge(layer string, number int64, p *whiteoutsOf) error {
	if !p.damaged {
		return nil
	}
	if p.unreadable != nil && !h.readOnly {
		file := h.path(whiteoutName(h.meta.disks[layer].whiteouts))
		return fmt.Errorf("page %d of %s, which hides discarded blocks of %s, cannot be read: %w; if it stays so, rebuild "+
			"the replica elsewhere, or give up what the file hides by removing it: the replica then counts as damaged",
			number, file, displayName(layer), p.unreadable)
	}
	h.note(layer, number)
	return nil
}

// Sound is nil unless what whiteouts hid was found damaged when these files were opened: then
// discarded blocks may show what was there before. The error is disk.ErrIO.
func (h *whiteoutFiles) Sound() error {
	if len(h.damaged) == 0 {
		return nil
	}
	d := h.damaged[0]
	return fmt.Errorf("%w: what %s hides of the layers below it is damaged: discarded blocks may show old content; "+
		"use another replica",
		disk.ErrIO, displayName(d.layer))
}

// Sound is Files.Sound of the files that the view reads.
func (v *ViewFiles) Sound() error { return v.at.whiteoutFiles.Sound() }

// clearDamage ends an open that has found damage. The record is void already, durably: the
// directory is a replica in good standing again only when a rebuild has compared all of it, or a
// person has said so. Until then what is damaged hides nothing.
func (h *whiteoutFiles) clearDamage() error {
	if h.readOnly {
		return nil
	}
	for _, d := range h.damaged {
		var err error
		if d.page < 0 {
			m := *h.meta.disks[d.layer]
			m.whiteouts = ""
			err = h.meta.change(d.layer, m)
		} else {
			err = h.clearPage(d.layer, d.page)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// clearPage makes a page one that was never written.
func (h *whiteoutFiles) clearPage(layer string, number int64) error {
	w, err := h.open(layer, 0)
	if err != nil || w == nil {
		return err
	}
	if err = w.reserve(number); err == nil {
		err = h.syncFile(w.file)
	}
	return errors.Join(err, w.close())
}

// clearDamagedPages durably makes the pages of a branch that are damaged ones that were never
// written. It is for the target of a rebuild, which compares and sets all that a branch hides;
// nobody looks at the pages of a branch when a directory is opened.
func (h *whiteoutFiles) clearDamagedPages(w *whiteoutFile) error {
	cleared := false
	err := w.each(0, func(number int64, p *whiteoutsOf) error {
		if !p.damaged {
			return nil
		}
		cleared = true
		return w.reserve(number)
	})
	if err != nil || !cleared {
		return err
	}
	return h.syncFile(w.file)
}

// create makes an empty whiteout file, durable with its name, and returns the number for
// the layer's .meta.
func (h *whiteoutFiles) create() (w *whiteoutFile, number string, err error) {
	if h.meta.vm.whiteoutKey() == (Stamp{}) {
		var key Stamp
		if _, err := io.ReadFull(h.meta.rand, key[:]); err != nil {
			return nil, "", err
		}
		vm := h.meta.vm
		vm.AnkoleWhiteouts = key.String()
		if err := h.meta.writeVolumeMeta(&vm); err != nil {
			return nil, "", err
		}
	}
	var random [8]byte
	var f disk.File
	for {
		if _, err := io.ReadFull(h.meta.rand, random[:]); err != nil {
			return nil, "", err
		}
		number = hex.EncodeToString(random[:])
		f, err = h.fs.Create(h.path(whiteoutName(number)), disk.Direct)
		if err == nil {
			break
		}
		if !errors.Is(err, disk.ErrExists) {
			return nil, "", err
		}
	}
	if err := h.syncDir(); err != nil {
		return nil, "", errors.Join(err, f.Close())
	}
	return &whiteoutFile{file: f, id: whiteoutID{h.meta.vm.whiteoutKey(), binary.BigEndian.Uint64(random[:])}}, number, nil
}

// add gives a layer an empty whiteout file.
func (h *whiteoutFiles) add(layer string) (*whiteoutFile, error) {
	w, number, err := h.create()
	if err != nil {
		return nil, err
	}
	d := *h.meta.disks[layer]
	d.whiteouts = number
	if err := h.meta.change(layer, d); err != nil {
		err = errors.Join(err, w.close())
		if h.broken == nil {
			err = errors.Join(err, removeIfThere(h.fs, h.path(whiteoutName(number))))
		}
		return nil, err
	}
	return w, nil
}

// drop removes whiteout files whose layers are gone. What is left after a crash the next
// open removes.
func (h *whiteoutFiles) drop(numbers ...string) error {
	for _, n := range numbers {
		if n == "" || h.meta.namesWhiteouts(n) {
			continue
		}
		if err := removeIfThere(h.fs, h.path(whiteoutName(n))); err != nil {
			return err
		}
	}
	return nil
}

// void is the part of Open that is about their names: where another engine has dropped
// volume.meta's key they are void, and their names go from the layers' .meta before a new key can
// be made.
func (h *whiteoutFiles) void() error {
	if h.meta.vm.whiteoutKey() == (Stamp{}) {
		for _, file := range slices.Sorted(maps.Keys(h.meta.disks)) {
			d := h.meta.disks[file]
			if d.whiteouts == "" {
				continue
			}
			h.log.Warn("whiteouts are void: another engine has used the directory", "dir", h.dir, "layer", file)
			void := *d
			void.whiteouts = ""
			if !h.readOnly {
				if err := h.meta.writeDiskMeta(file, &void); err != nil {
					return err
				}
			}
			h.meta.disks[file] = &void
		}
	}
	return nil
}

// missing notes which layers, of other branches too, have lost their whiteout files.
func (h *whiteoutFiles) missing(names []string) {
	for _, file := range slices.Sorted(maps.Keys(h.meta.disks)) {
		if n := h.meta.disks[file].whiteouts; n != "" && !slices.Contains(names, whiteoutName(n)) {
			h.note(file, -1)
		}
	}
}

// strays lists the whiteout files of no layer.
func (h *whiteoutFiles) strays(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		number, ok := strings.CutPrefix(name, whiteoutPrefix)
		return !ok || h.meta.namesWhiteouts(number)
	})
}

// hideBy enters the whiteouts of layer i into the map, after the layers below it and before its own
// blocks.
func (o *openFiles) hideBy(b *Blocks, i int) error {
	l := &o.layers[i]
	if i == 1 {
		return nil // nothing is below it
	}
	return l.whiteouts.each(0, func(number int64, p *whiteoutsOf) error {
		if err := o.whiteoutFiles.judge(l.name, number, p); err != nil {
			return err
		}
		p.bits.runs(func(first, last int64) {
			b.hide(number*whiteoutBlocks+first, min(number*whiteoutBlocks+last, int64(len(b.m.b))))
		})
		return nil
	})
}

// openHeadWhiteouts gives b the head's whiteouts.
func (o *openFiles) openHeadWhiteouts(b *Blocks) error {
	b.whiteouts = headWhiteouts{}
	if o.readOnly {
		return nil
	}
	return o.head().whiteouts.each(0, func(number int64, p *whiteoutsOf) error {
		// Nobody has looked if the map was handed over.
		if err := o.whiteoutFiles.judge(o.head().name, number, p); err != nil {
			return err
		}
		if p.damaged {
			*p = whiteoutsOf{} // Open clears it
		}
		if p.seq == 0 {
			return nil // it may have less space than it needs, and is given it again
		}
		b.whiteouts.put(number, &headPage{bits: p.bits, durable: p.bits, seq: p.seq})
		if !p.twice {
			b.whiteouts.single[number] = true
		}
		return nil
	})
}

// forget makes the sidecars void: Open's last step writes a volume.meta without their stamp.
func (s *Sidecars) forget() error {
	var err error
	for _, f := range []**slotFile{&s.member, &s.dirty, &s.absentFile} {
		if *f != nil {
			err = errors.Join(err, (*f).file.Close())
			*f = nil
		}
	}
	s.stamp, s.record, s.recordValid, s.regions, s.regionsKnown, s.absent = Stamp{}, Record{}, false, nil, false, nil
	return err
}

// WhiteoutRoom makes room for what Blocks.WhiteoutsWanted says is missing. It may run beside I/O.
// ErrNoSpace leaves everything as it was.
func (o *openFiles) WhiteoutRoom(want WhiteoutsWanted) (WhiteoutRoom, error) {
	if err := o.usable(); err != nil {
		return WhiteoutRoom{}, err
	}
	h := o.head()
	if h.whiteouts == nil {
		w, err := o.whiteoutFiles.add(h.name)
		if err != nil {
			return WhiteoutRoom{}, err
		}
		h.whiteouts = w
	}
	for n := want.first; n <= want.last; n++ {
		if err := h.whiteouts.reserve(n); err != nil {
			return WhiteoutRoom{}, err
		}
	}
	return WhiteoutRoom{h.whiteouts, want}, nil
}

// PunchLayer makes [off, off+n) a hole in a layer below the head of a rebuild target, or in a
// branch that is open, which hides what is below it, or no longer does. number is as in Extents.
// Durable after FinishRebuild.
func (o *openFiles) PunchLayer(number int, off, n int64, hide bool) error {
	if err := o.usable(); err != nil {
		return err
	}
	if number >= len(o.layers)-o.bottomIndex()+len(o.branches) {
		return fmt.Errorf("%w: there is no layer %d", ErrNotFound, number)
	}
	l := o.numbered(number)
	if l.whiteouts == nil && hide {
		return fmt.Errorf("%w: %s was not described as a layer with whiteouts", ErrInvalid, l.name)
	}
	if err := l.file.Punch(off, n); err != nil || l.whiteouts == nil {
		return err
	}
	return l.whiteouts.edit(off/blockSize, (off+n)/blockSize, hide)
}

// syncWhiteouts makes what PunchLayer did durable.
func (o *openFiles) syncWhiteouts() error {
	for _, l := range slices.Concat(o.layers, o.branches) {
		if err := l.whiteouts.sync(); err != nil {
			return o.breaks(err)
		}
	}
	return nil
}

// hiddenBy tells which of some blocks of a file the layers above it hide through which it is read:
// those of the live chain and those of open views. The files that these have open count, not what
// the layers' .meta name: a merge gives a layer another one, and whoever reads through the old one
// goes on with that.
func (c *readers) hiddenBy(inode uint64, blocks []Rot) (map[whiteoutID]map[int64]bool, error) {
	layers := above(inode, c.openFiles.layers[:len(c.openFiles.layers)-1]) // the head's are in memory
	for _, v := range c.views {
		layers = append(layers, above(inode, v.at.openFiles.layers)...)
	}
	out := map[whiteoutID]map[int64]bool{}
	for _, l := range layers {
		w := l.whiteouts
		if w == nil || out[w.id] != nil {
			continue
		}
		own := map[int64]bool{}
		for _, r := range blocks {
			if err := w.blocks(r.Off/blockSize, (r.Off+r.Len)/blockSize, func(at int64) { own[at] = true }); err != nil {
				return nil, err
			}
		}
		out[w.id] = own
	}
	return out, nil
}

// above returns the layers above a file, none if it is not one of them.
func above(inode uint64, layers []layer) []layer {
	i := slices.IndexFunc(layers, func(l layer) bool { return l.file != nil && l.inode == inode })
	if i < 0 {
		return nil
	}
	return slices.Clone(layers[i+1:])
}

// Hides lists the pieces of a size in which a layer has whiteouts, by its number, from off to end,
// so many ranges at most, in order, neighbours joined; next is where the list goes on if it was
// cut, else end. disk.ErrIO if it is not known which there are.
func (o *openFiles) Hides(number int, piece, off, end int64, most int) (out [][2]int64, next int64, err error) {
	if number >= len(o.layers)-o.bottomIndex()+len(o.branches) {
		return nil, 0, fmt.Errorf("%w: there is no layer %d", ErrNotFound, number)
	}
	next = end
	w := o.numbered(number).whiteouts
	err = w.each(off/whiteoutSpan, func(page int64, p *whiteoutsOf) error {
		if err := p.known(w, page); err != nil {
			return err
		}
		p.bits.runs(func(first, last int64) {
			beg := max(page*whiteoutSpan+first*blockSize, off) / piece * piece
			stop := min((min(page*whiteoutSpan+last*blockSize, next)+piece-1)/piece*piece, o.meta.vm.Size)
			switch n := len(out); {
			case beg >= stop || page*whiteoutSpan+last*blockSize <= off:
			case n > 0 && out[n-1][1] >= beg:
				out[n-1][1] = max(out[n-1][1], stop)
			case n == most:
				next = min(next, beg)
			default:
				out = append(out, [2]int64{beg, stop})
			}
		})
		if (page+1)*whiteoutSpan >= next {
			return errStop
		}
		return nil
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return out, next, err
}

// errStop ends a walk through pages early.
var errStop = errors.New("stop")
