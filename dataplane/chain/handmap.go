package chain

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"

	"ankole.storage/disk"
)

// In a live upgrade the process that has a directory gives the next one its block map, because looking at the extents of a
// head in a million pieces takes a second, in which users wait. A map that is not the files' own would make a block vanish or
// an old one appear, so one that was handed over counts only if all of this holds, and is built from the extents otherwise:
//
//   - volume.meta says that the directory was closed cleanly and names the map by a random token. It is written by the Close
//     that hands the map over, and gone as soon as anybody opens the directory for writing.
//   - The sidecars are where they were: every engine makes its epoch durable in one of them before it writes anything. That
//     holds against programs which know nothing of the token and carry it along.
//   - Every file of the chain is the one it was, with the size, the space and the time of its last change it had.
//   - The map is whole, and as long as the volume needs. Values and the number of the head's blocks are possible.
//   - What the file system says of some pieces of the head is what the map says of them.
//
// docs/upgrade.md has the way it takes from one process to the other, docs/format-replica.md the format.

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
	// mapSamples is how many pieces of the head are looked at before a map is believed: each costs a call for ExtentsPerCall
	// extents, about a millisecond.
	mapSamples = 4
)

// castagnoli is computed by the processor: the map of a terabyte is 256 MiB.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// mapHeader says what a map is of. Whoever hands over and whoever takes write the same header, or the map is not used.
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

func (c *Chain) mapHeader(token string) ([]byte, error) {
	h := mapHeader{Token: token, Stamp: c.vm.AnkoleStamp, Member: c.member.seq, Size: c.vm.Size}
	if c.dirty != nil {
		h.Dirty = c.dirty.seq
	}
	for _, l := range c.layers[1:] {
		info, err := l.file.Stat()
		if err != nil {
			return nil, err
		}
		h.Layers = append(h.Layers, mapLayer{Name: l.name, Inode: info.Inode, Size: info.Size, Allocated: info.Allocated,
			CTime: info.CTime.UnixNano()})
	}
	return json.Marshal(h)
}

// CloseFor is Close where another process waits for the directory: before the lock is given up, hand is called with the block
// map, to write it where that process finds it (Options.Map). If it fails, the next one builds its own.
func (c *Chain) CloseFor(hand func(m io.WriterTo) error) error {
	if !c.closed && !c.opts.ReadOnly && c.broken == nil && c.member != nil && !c.vm.Rebuilding {
		if err := c.handMap(hand); err != nil {
			c.opts.Log.Warn("block map is not handed over: the next process builds its own", "dir", c.dir, "error", err)
		}
	}
	return c.Close()
}

func (c *Chain) handMap(hand func(m io.WriterTo) error) error {
	if err := c.syncFile(c.head().file); err != nil { // nothing of the head changes after it
		return err
	}
	var random [mapTokenSize]byte
	if _, err := io.ReadFull(c.opts.Rand, random[:]); err != nil {
		return err
	}
	token := hex.EncodeToString(random[:])
	header, err := c.mapHeader(token)
	if err != nil {
		return err
	}
	if err := hand(&outgoingMap{&c.m, header}); err != nil {
		return err
	}
	c.handed = token
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

// takeMap takes the map that another process has handed over, and reports whether it could. The layers are open and nothing
// has been changed.
func (c *Chain) takeMap() bool {
	if c.opts.Map == nil || c.opts.ReadOnly || c.vm.AnkoleMap == "" || c.vm.Dirty || c.vm.Rebuilding || c.member == nil {
		return false
	}
	data := c.opts.Map()
	if data == nil {
		return false
	}
	err := c.loadMap(data)
	if err == nil {
		err = c.sampleMap()
	}
	if err != nil {
		c.opts.Log.Warn("block map handed over is not used: it is built from the files", "dir", c.dir, "reason", err)
		c.m.free()
		return false
	}
	c.taken = true
	c.opts.Log.Info("block map taken over from the process before", "dir", c.dir, "bytes", len(data))
	return true
}

// MapTaken reports that the block map came from the process that had the directory before.
func (c *Chain) MapTaken() bool { return c.taken }

// loadMap fills the empty map from data.
func (c *Chain) loadMap(data []byte) error {
	want, err := c.mapHeader(c.vm.AnkoleMap)
	if err != nil {
		return err
	}
	if err := c.m.resize(c.vm.Size); err != nil {
		return err
	}
	header, body, err := splitMap(data)
	if err != nil {
		return err
	}
	if !bytes.Equal(header, want) {
		return fmt.Errorf("%w: it is of %s, the directory is %s", ErrInvalid, clipped(header), clipped(want))
	}
	return c.fillMap(body)
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
func (c *Chain) fillMap(body []byte) error {
	m, pages := &c.m, c.m.pageCount()
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
			n, err := c.checkPage(p, s)
			if err != nil {
				return err
			}
			inHead += n
		}
	}
	if len(body) != 0 {
		return fmt.Errorf("%w: %d bytes too many", ErrCorrupt, len(body))
	}
	info, err := c.head().file.Stat()
	if err == nil && inHead*blockSize > info.Allocated {
		err = fmt.Errorf("%w: %d blocks in a head that occupies %d bytes", ErrCorrupt, inHead, info.Allocated)
	}
	return err
}

// checkPage refuses values that no layer has, and notes what the page holds. It returns how many blocks are in the head.
func (c *Chain) checkPage(p int, s []byte) (inHead int64, err error) {
	var seen [256]int64
	for _, v := range s {
		seen[v]++
	}
	for v, n := range seen {
		if n > 0 && v != inNone && v != inHeadOnly && (v < c.bottomIndex() || v >= len(c.layers)) {
			return 0, fmt.Errorf("%w: a block in layer %d of %d", ErrCorrupt, v, len(c.layers)-1)
		}
	}
	first := int64(p) * mapPage
	note(c.m.used, first, first+1)
	if seen[inHeadOnly] > 0 {
		note(c.m.only, first, first+1)
	}
	return seen[inHeadOnly] + seen[c.headIndex()], nil
}

// sampleMap compares the map with what the file system says of some pieces of the head, spread over what the map says it has.
func (c *Chain) sampleMap() error {
	var pages []int
	for p := range c.m.pageCount() {
		if c.m.isUsed(p) {
			pages = append(pages, p)
		}
	}
	if len(pages) == 0 {
		pages = []int{0} // an empty map of a head that is not
	}
	for i := range min(mapSamples, len(pages)) {
		if err := c.samplePiece(int64(pages[i*len(pages)/mapSamples]) * mapPage); err != nil {
			return err
		}
	}
	return nil
}

// samplePiece compares the blocks from first on, as far as one call tells.
func (c *Chain) samplePiece(first int64) error {
	found, more, err := c.head().file.Extents(first*blockSize, make([]disk.Extent, 0, disk.ExtentsPerCall))
	if err != nil {
		return err
	}
	at := first
	wrong := func(b int64) error {
		return fmt.Errorf("%w: block %d is in layer %d by the map, and the head's file says otherwise", ErrCorrupt, b, c.m.b[b])
	}
	for _, e := range found {
		begin, end := c.blocksOf(e)
		for ; at < begin; at++ {
			if c.inHead(at) {
				return wrong(at)
			}
		}
		for ; at < end; at++ {
			if !c.inHead(at) {
				return wrong(at)
			}
		}
	}
	for ; !more && at < min(first+mapPage, int64(len(c.m.b))); at++ {
		if c.inHead(at) {
			return wrong(at)
		}
	}
	return nil
}

// CheckMap compares the block map with one built from the files' extents, for tests and simulations. Nothing may be in flight.
func (c *Chain) CheckMap() error {
	fresh := &Chain{fs: c.fs, dir: c.dir, opts: Options{ReadOnly: true, Log: c.opts.Log}, vm: c.vm, size: c.size, layers: c.layers, backing: c.backing,
		skipUnwritten: c.skipUnwritten}
	defer fresh.m.free()
	if err := fresh.extentsMap(); err != nil {
		return err
	}
	for b, v := range c.m.b {
		if v == inHeadOnly {
			v = c.headIndex()
		}
		w := fresh.m.b[b]
		if w == inHeadOnly {
			w = c.headIndex()
		}
		if v != w {
			return fmt.Errorf("%w: block %d is in layer %d by the map, in layer %d by the files of %s", ErrCorrupt, b, v, w, c.dir)
		}
	}
	return nil
}
