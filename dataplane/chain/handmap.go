package chain

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"

	"ankole.storage/dataplane/disk"
)

// In a live upgrade the process that has a directory gives the next one its block map, because
// looking at the extents of a head in a million pieces takes a second, in which users wait. A map
// that is not the files' own would make a block vanish or an old one appear, so one that was handed
// over counts only if all of this holds, and is built from the extents otherwise:
//
//   - volume.meta says that the directory was closed cleanly and names the map by a random token.
//     It is written by the Close that hands the map over, and gone as soon as anybody opens the
//     directory for writing.
//   - The sidecars are where they were: every engine makes its epoch durable in one of them before
//     it writes anything. That holds against programs which know nothing of the token and carry it
//     along.
//   - Every file of the chain is the one it was, with the size, the space and the time of its last
//     change it had.
//   - The map is whole, and as long as the volume needs. Values and the number of the head's blocks
//     are possible.
//   - What the file system says of some pieces of the head is what the map says of them.
//
// docs/design/upgrade.md has the way it takes from one process to the other,
// docs/design/format-replica.md the format.

const (
	// mapMagic begins a map that is handed over; its last byte is the version.
	mapMagic = "ANKMAP\x00\x01"
	// mapLengthAt is where the length of the header is, mapHeaderAt the header.
	mapLengthAt = 8
	mapHeaderAt = 12
	// maxMapHeader bounds the header: 250 layers with names of 250 bytes.
	maxMapHeader = 256 << 10
	// mapTokenSize in bytes; random, so that no token is ever used twice.
	mapTokenSize = 16
	// mapSamples is how many pieces of the head are looked at before a map is used: each costs
	// a call for ExtentsPerCall extents, about a millisecond.
	mapSamples = 4
)

// castagnoli is computed by the processor: the map of a terabyte is 256 MiB.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// mapHandover is the block map's way from the process that had the directory to this one, and from
// this one to the next.
//
// Its own are left, by which the process before has left its map, taken and handed.
type mapHandover struct {
	*directory
	meta      *meta
	openFiles *openFiles
	left      func() []byte
	// handed names the map that was given to the next process, taken: this one's came from the
	// process before.
	handed string
	taken  bool
}

// mapHeader says what a map is of. Whoever hands over and whoever takes write the same header, or
// the map is not used.
type mapHeader struct {
	Token string
	Stamp string
	// Member and Dirty are the sequence numbers of the sidecars.
	Member, Dirty uint64
	Size          int64
	Layers        []mapLayer
}

// mapLayer is a file of the chain, the backing file included.
type mapLayer struct {
	Name            string
	Inode           uint64
	Size, Allocated int64
	// CTime in nanoseconds.
	CTime int64
}

func (a *mapHandover) header(s *Sidecars, token string) ([]byte, error) {
	h := mapHeader{Token: token, Stamp: a.meta.vm.AnkoleStamp, Member: s.member.seq, Size: a.meta.vm.Size}
	if s.dirty != nil {
		h.Dirty = s.dirty.seq
	}
	for _, l := range a.openFiles.layers[1:] {
		info, err := l.file.Stat()
		if err != nil {
			return nil, err
		}
		h.Layers = append(h.Layers, mapLayer{Name: l.name, Inode: info.Inode, Size: info.Size, Allocated: info.Allocated,
			CTime: info.CTime.UnixNano()})
	}
	return json.Marshal(h)
}

// CloseFor is Close where another process waits for the directory: before the lock is given up,
// hand is called with the block map m, to write it where that process finds it (Options.Map). If it
// fails, the next one builds its own. m is freed in any case.
func (c *Files) CloseFor(s *Sidecars, m Retired, hand func(m io.WriterTo) error) error {
	defer m.Free()
	if !c.closed && !c.readOnly && c.broken == nil && s.broken == nil && c.meta.stamped && !c.meta.vm.Rebuilding {
		if err := c.mapHandover.hand(s, m, hand); err != nil {
			c.log.Warn("block map is not handed over: the next process builds its own", "dir", c.dir, "error", err)
		}
	}
	return errors.Join(c.close(s.broken), s.Close())
}

// CloseFor is Files.CloseFor with the chain's own map.
func (c *Chain) CloseFor(hand func(m io.WriterTo) error) error {
	err := c.settle()
	return errors.Join(err, c.Files.CloseFor(c.Sidecars, c.Retire(), hand))
}

func (a *mapHandover) hand(s *Sidecars, m Retired, hand func(m io.WriterTo) error) error {
	if err := a.syncFile(a.openFiles.head().file); err != nil { // nothing of the head changes after it
		return err
	}
	var random [mapTokenSize]byte
	if _, err := io.ReadFull(a.meta.rand, random[:]); err != nil {
		return err
	}
	token := hex.EncodeToString(random[:])
	header, err := a.header(s, token)
	if err != nil {
		return err
	}
	if err := hand(&outgoingMap{m.m, header}); err != nil {
		return err
	}
	a.handed = token
	return nil
}

// outgoingMap is a map on its way to another process.
type outgoingMap struct {
	m      *blockMap
	header []byte
}

// WriteTo implements io.WriterTo. It writes few large pieces.
func (o *outgoingMap) WriteTo(w io.Writer) (n int64, err error) {
	sum := uint32(0)
	put := func(p []byte) {
		if err != nil {
			return
		}
		sum = crc32.Update(sum, castagnoli, p)
		var k int
		k, err = w.Write(p)
		n += int64(k)
	}
	pages := o.m.pageCount()
	head := append([]byte(mapMagic), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(head[mapLengthAt:], uint32(len(o.header)))
	head = append(head, o.header...)
	for i := range (pages + 63) / 64 {
		head = binary.LittleEndian.AppendUint64(head, o.m.used[i])
	}
	put(head)
	for p := 0; p < pages; {
		first := p
		for p < pages && o.m.isUsed(p) {
			p++
		}
		if p > first {
			put(o.m.b[first*mapPage : min(p*mapPage, len(o.m.b))])
			continue
		}
		p++
	}
	var end [4]byte
	binary.LittleEndian.PutUint32(end[:], sum)
	put(end[:])
	return n, err
}

// pageCount is how many pages cover the volume.
func (m *blockMap) pageCount() int { return (len(m.b) + mapPage - 1) / mapPage }

func (m *blockMap) isUsed(page int) bool { return m.used[page/64]>>(page%64)&1 != 0 }

// take takes the map that another process has handed over, and reports whether it could. The
// layers are open and nothing has been changed.
func (a *mapHandover) take(s *Sidecars, b *Blocks) bool {
	vm := &a.meta.vm
	if a.left == nil || a.readOnly || vm.AnkoleMap == "" || vm.Dirty || vm.Rebuilding || !a.meta.stamped {
		return false
	}
	data := a.left()
	if data == nil {
		return false
	}
	err := a.load(s, b, data)
	if err == nil {
		err = b.sampleMap()
	}
	if err != nil {
		a.log.Warn("block map handed over is not used: it is built from the files", "dir", a.dir, "reason", err)
		b.m.free()
		return false
	}
	a.taken = true
	a.log.Info("block map taken over from the process before", "dir", a.dir, "bytes", len(data))
	return true
}

// MapTaken reports that the block map came from the process that had the directory before.
func (a *mapHandover) MapTaken() bool { return a.taken }

// load fills the empty map from data.
func (a *mapHandover) load(s *Sidecars, b *Blocks, data []byte) error {
	want, err := a.header(s, a.meta.vm.AnkoleMap)
	if err != nil {
		return err
	}
	if err := b.m.resize(a.meta.vm.Size); err != nil {
		return err
	}
	header, body, err := splitMap(data)
	if err != nil {
		return err
	}
	if !bytes.Equal(header, want) {
		return fmt.Errorf("%w: it is of %s, the directory is %s", ErrInvalid, clipped(header), clipped(want))
	}
	return b.fillMap(body)
}

// clipped is a header for messages.
func clipped(header []byte) []byte { return header[:min(len(header), 512)] }

// splitMap checks that a map is whole, and returns its two parts.
func splitMap(data []byte) (header, body []byte, err error) {
	if len(data) < mapHeaderAt+4 || string(data[:mapLengthAt]) != mapMagic {
		return nil, nil, fmt.Errorf("%w: %d bytes that are no block map of this version", ErrCorrupt, len(data))
	}
	n := int(binary.LittleEndian.Uint32(data[mapLengthAt:]))
	data, end := data[:len(data)-4], data[len(data)-4:]
	if n > maxMapHeader || mapHeaderAt+n > len(data) {
		return nil, nil, fmt.Errorf("%w: header of %d bytes in %d", ErrCorrupt, n, len(data))
	}
	if crc32.Checksum(data, castagnoli) != binary.LittleEndian.Uint32(end) {
		return nil, nil, fmt.Errorf("%w: wrong checksum", ErrCorrupt)
	}
	return data[mapHeaderAt : mapHeaderAt+n], data[mapHeaderAt+n:], nil
}

// fillMap copies the pages and checks every value.
func (b *Blocks) fillMap(body []byte) error {
	m, pages := &b.m, b.m.pageCount()
	words := (pages + 63) / 64
	if len(body) < words*8 {
		return fmt.Errorf("%w: %d bytes for %d pages", ErrCorrupt, len(body), pages)
	}
	set, body := body[:words*8], body[words*8:]
	inHead := int64(0)
	for i := range words {
		for word := binary.LittleEndian.Uint64(set[i*8:]); word != 0; word &= word - 1 {
			p := i*64 + bits.TrailingZeros64(word)
			if p >= pages {
				return fmt.Errorf("%w: page %d of %d", ErrCorrupt, p, pages)
			}
			s := m.b[p*mapPage : min((p+1)*mapPage, len(m.b))]
			if len(body) < len(s) {
				return fmt.Errorf("%w: page %d is missing", ErrCorrupt, p)
			}
			copy(s, body)
			body = body[len(s):]
			n, err := b.checkPage(p, s)
			if err != nil {
				return err
			}
			inHead += n
		}
	}
	if len(body) != 0 {
		return fmt.Errorf("%w: %d bytes too many", ErrCorrupt, len(body))
	}
	info, err := b.head().file.Stat()
	if err == nil && inHead*blockSize > info.Allocated {
		err = fmt.Errorf("%w: %d blocks in a head that occupies %d bytes", ErrCorrupt, inHead, info.Allocated)
	}
	return err
}

// checkPage refuses values that no layer has, and notes what the page holds. It returns how many
// blocks are in the head.
func (b *Blocks) checkPage(p int, s []byte) (inHead int64, err error) {
	var seen [256]int64
	for _, v := range s {
		seen[v]++
	}
	for v, n := range seen {
		if n > 0 && v != inNone && v != inHeadOnly && v != inVoid && (v < b.bottomIndex() || v >= len(b.layers)) {
			return 0, fmt.Errorf("%w: a block in layer %d of %d", ErrCorrupt, v, len(b.layers)-1)
		}
	}
	first := int64(p) * mapPage
	note(b.m.used, first, first+1)
	if seen[inHeadOnly] > 0 {
		note(b.m.only, first, first+1)
	}
	return seen[inHeadOnly] + seen[b.headIndex()], nil
}

// sampleMap compares the map with what the file system says of some pieces of the head, spread over
// what the map says it has.
func (b *Blocks) sampleMap() error {
	var pages []int
	for p := range b.m.pageCount() {
		if b.m.isUsed(p) {
			pages = append(pages, p)
		}
	}
	if len(pages) == 0 {
		pages = []int{0} // an empty map of a head that is not
	}
	for i := range min(mapSamples, len(pages)) {
		if err := b.samplePiece(int64(pages[i*len(pages)/mapSamples]) * mapPage); err != nil {
			return err
		}
	}
	return nil
}

// samplePiece compares the blocks from first on, as far as one call tells.
func (b *Blocks) samplePiece(first int64) error {
	found, more, err := b.head().file.Extents(first*blockSize, make([]disk.Extent, 0, disk.ExtentsPerCall))
	if err != nil {
		return err
	}
	at, blocks := first, int64(len(b.m.b))
	wrong := func(at int64) error {
		return fmt.Errorf("%w: block %d is in layer %d by the map, and the head's file says otherwise", ErrCorrupt, at,
			b.m.b[at])
	}
	for _, e := range found {
		begin, end := blocksOf(e, blocks)
		for ; at < begin; at++ {
			if b.inHead(at) {
				return wrong(at)
			}
		}
		for ; at < end; at++ {
			if !b.inHead(at) {
				return wrong(at)
			}
		}
	}
	for ; !more && at < min(first+mapPage, blocks); at++ {
		if b.inHead(at) {
			return wrong(at)
		}
	}
	return nil
}

// readFrom is the layer whose file a block is read from, 0 for none: not that of a backing file
// that ends before it.
func (b *Blocks) readFrom(at int64) byte {
	v := b.index(b.m.b[at])
	if b.backing && v == 1 && !b.backed(at) {
		return inNone
	}
	return v
}

// CheckMap compares the block map with one built from the files' extents, for tests and
// simulations. Nothing may be in flight.
func (c *Chain) CheckMap() error {
	d := c.Files.directory.another(true)
	files := newFiles(d, c.meta.beside(d, c.meta.vm.Head, nil), c.opts)
	files.openFiles.table, files.openFiles.skipUnwritten = c.Blocks.table.clone(), c.openFiles.skipUnwritten
	fresh := &Blocks{table: c.Blocks.table}
	defer fresh.Free()
	if err := files.openFiles.extentsMap(fresh); err != nil {
		return err
	}
	for at := range c.m.b {
		v, w := c.readFrom(int64(at)), fresh.readFrom(int64(at))
		if c.m.b[at] == inHeadOnly && fresh.m.b[at] != inHeadOnly {
			return fmt.Errorf("%w: block %d is in the head only by the map, and below it by the files of %s",
				ErrCorrupt, at, c.Files.dir)
		}
		if v != w {
			return fmt.Errorf("%w: block %d is in layer %d by the map, in layer %d by the files of %s", ErrCorrupt, at,
				v, w, c.Files.dir)
		}
	}
	return c.m.check()
}
