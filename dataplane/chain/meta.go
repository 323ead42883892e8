package chain

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
)

// SectorSize is what volume.meta says; it has no influence on the layout.
const metaSectorSize = 512

// maxMetaBytes bounds every JSON file read from a directory: labels are the only part that grows.
const maxMetaBytes = 1 << 20

// stampKey is the key in volume.meta that binds our sidecars to it. Engines that do not know it
// drop it when they rewrite the file, and so make the sidecars void.
const stampKey = "AnkoleStamp"

// ownHeadKey names the head in which unwritten extents can only be interrupted writes: one created,
// or cleared of other engines' preallocated zeroes, under the present stamp.
const ownHeadKey = "AnkoleHead"

// incompleteKey marks a directory that is being emptied or made into a rebuild target: it counts as
// holding nothing.
const incompleteKey = "AnkoleIncomplete"

// mapKey names the block map that the process which closed the directory has handed to another one,
// see handmap.go. It is gone as soon as the directory is opened for writing.
const mapKey = "AnkoleMap"

// givenUpKey lists the heads that reverts have left, with what is in them, since the directory was
// opened. A file of that name that is still there need not be kept.
const givenUpKey = "AnkoleGivenUp"

// fillingKey has the holes of a snapshot that are being written to, see filling.
const fillingKey = "AnkoleFilling"

// Stamp binds sidecar files to a volume.meta. The zero Stamp is none.
type Stamp [16]byte

// String is the stamp as volume.meta has it.
func (s Stamp) String() string { return hex.EncodeToString(s[:]) }

// volumeMeta is the content of volume.meta.
type volumeMeta struct {
	Size            int64
	Head            string
	Dirty           bool
	Rebuilding      bool
	Error           string
	Parent          string
	SectorSize      int64
	BackingFilePath string
	Encrypted       *bool  `json:",omitempty"`
	AnkoleStamp     string `json:",omitempty"`
	AnkoleHead      string `json:",omitempty"`
	AnkoleMap       string `json:",omitempty"`
	AnkoleSeal      string `json:",omitempty"`
	// AnkoleGivenUp are heads that reverts and rebuilds have left since the directory was opened.
	AnkoleGivenUp []string `json:",omitempty"`
	AnkoleFilling *filling `json:",omitempty"`
	// AnkoleWhiteouts binds the whiteout files of all layers.
	AnkoleWhiteouts string `json:",omitempty"`
	// AnkoleIncomplete: the directory is being emptied or filled and holds no replica.
	AnkoleIncomplete bool `json:",omitempty"`

	// extra keeps keys we do not know, so that rewriting the file loses nothing.
	extra map[string]json.RawMessage
}

// DiskMeta is the content of a layer's .meta file.
type DiskMeta struct {
	// Name is informational and often an older name of the file; never trust it.
	Name string
	// Parent is the file below, "" for the bottom layer.
	Parent      string
	Removed     bool
	UserCreated bool
	// Created is RFC 3339, UTC.
	Created string
	Labels  map[string]string

	// whiteouts is the number of the layer's whiteout file, "" for none. Whoever is given a copy is
	// not given it.
	whiteouts string
	extra     map[string]json.RawMessage
}

// encodeJSON renders v on one line with a newline, and appends the unknown keys of extra in sorted
// order.
func encodeJSON(v any, extra map[string]json.RawMessage) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("chain: encode %T: %v", v, err)) // plain structs of strings, numbers and booleans
	}
	if len(extra) > 0 {
		b = b[:len(b)-1]
		for _, k := range slices.Sorted(maps.Keys(extra)) {
			key, _ := json.Marshal(k)
			b = append(b, ',')
			b = append(b, key...)
			b = append(b, ':')
			b = append(b, extra[k]...)
		}
		b = append(b, '}')
	}
	return append(b, '\n')
}

// decodeJSON fills v from the first JSON value in data and returns the keys that are not in known.
func decodeJSON(data []byte, v any, known []string) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	if all == nil {
		return nil, fmt.Errorf("null instead of an object")
	}
	for k := range all {
		// The decoder matches keys without regard to case, so a differently cased known key was
		// already taken.
		if slices.ContainsFunc(known, func(n string) bool { return equalFoldASCII(n, k) }) {
			delete(all, k)
		}
	}
	if len(all) == 0 {
		all = nil
	}
	return all, nil
}

func equalFoldASCII(a, b string) bool { return bytes.EqualFold([]byte(a), []byte(b)) }

var volumeMetaKeys = []string{"Size", "Head", "Dirty", "Rebuilding", "Error", "Parent", "SectorSize", "BackingFilePath",
	"Encrypted", stampKey, ownHeadKey, incompleteKey, mapKey, givenUpKey, fillingKey, sealKey,
	whiteoutKey}

var diskMetaKeys = []string{"Name", "Parent", "Removed", "UserCreated", "Created", "Labels", whiteoutKey}

func (v *volumeMeta) encode() []byte { return encodeJSON(v, v.extra) }

// parseVolumeMeta decodes and checks volume.meta. Empty content is the caller's case.
func parseVolumeMeta(data []byte) (*volumeMeta, error) {
	v := &volumeMeta{}
	extra, err := decodeJSON(data, v, volumeMetaKeys)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is not valid JSON: %v", ErrCorrupt, volumeMetaName, err)
	}
	v.extra = extra
	if err := validateSize(v.Size); err != nil {
		return nil, fmt.Errorf("%w: %s: Size: %w", ErrCorrupt, volumeMetaName, err)
	}
	if !isHeadFile(v.Head) {
		return nil, fmt.Errorf("%w: %s: Head %q is not the name of a head file", ErrCorrupt, volumeMetaName, v.Head)
	}
	if err := checkParent(v.Parent); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, volumeMetaName, err)
	}
	if w := v.AnkoleFilling; w != nil && !w.valid() {
		return nil, fmt.Errorf("%w: %s: %s is none of a snapshot", ErrCorrupt, volumeMetaName, fillingKey)
	}
	return v, nil
}

// stamp returns the key's value, or the zero Stamp when it is absent or not one.
func (v *volumeMeta) stamp() Stamp {
	var s Stamp
	b, err := hex.DecodeString(v.AnkoleStamp)
	if err != nil || len(b) != len(s) {
		return Stamp{}
	}
	copy(s[:], b)
	return s
}

// diskMetaFile is a layer's .meta as it is written: DiskMeta, and what is not for others.
type diskMetaFile struct {
	*DiskMeta
	AnkoleWhiteouts string `json:",omitempty"`
}

func (d *DiskMeta) encode() []byte { return encodeJSON(diskMetaFile{d, d.whiteouts}, d.extra) }

// parseDiskMeta decodes a layer's .meta; every key may be missing.
func parseDiskMeta(file string, data []byte) (*DiskMeta, error) {
	d := &DiskMeta{}
	f := diskMetaFile{DiskMeta: d}
	extra, err := decodeJSON(data, &f, diskMetaKeys)
	if err != nil {
		return nil, fmt.Errorf("%w: %s%s is not valid JSON: %v", ErrCorrupt, file, metaSuffix, err)
	}
	d.extra, d.whiteouts = extra, f.AnkoleWhiteouts
	if _, ok := whiteoutNumber(d.whiteouts); d.whiteouts != "" && !ok { // part of a file's name
		return nil, fmt.Errorf("%w: %s%s: %s is %.40q", ErrCorrupt, file, metaSuffix, whiteoutKey, d.whiteouts)
	}
	if err := checkParent(d.Parent); err != nil {
		return nil, fmt.Errorf("%w: %s%s: %w", ErrCorrupt, file, metaSuffix, err)
	}
	d.Name = file
	return d, nil
}

// checkParent accepts "" and the file of a snapshot: a head is nobody's parent.
func checkParent(parent string) error {
	if parent == "" {
		return nil
	}
	if _, ok := snapshotName(parent); !ok {
		return fmt.Errorf("parent %q is not the name of a snapshot file", parent)
	}
	return nil
}

// maxVolumeSize bounds volume sizes: 64 TiB, far above what sparse files of the common file systems
// hold (16 TiB on ext4), low enough that a corrupted size cannot exhaust memory.
const maxVolumeSize = 64 << 40

func validateSize(size int64) error {
	switch {
	case size <= 0:
		return fmt.Errorf("%w: volume size %d must be positive", ErrInvalid, size)
	case size%blockSize != 0:
		return fmt.Errorf("%w: volume size %d is not a multiple of %d", ErrInvalid, size, blockSize)
	case size > maxVolumeSize:
		return fmt.Errorf("%w: volume size %d is above the limit of %d", ErrInvalid, size, int64(maxVolumeSize))
	}
	return nil
}

// meta is what the JSON files of a directory say, and the only one that replaces them: volume.meta,
// which names the head, and each layer's .meta, which names its parent.
//
// Its own are vm and disks, which are what the files hold: a change is durable before it is here
// (writeVolumeMeta, change). An entry of disks is not written to but replaced; what a rotation, a
// removal and a revert do to the set of entries they do when that is durable.
type meta struct {
	*directory
	// copies are what ankole.meta says of these files and of the images.
	*copies
	reserve reserve
	rand    io.Reader

	vm volumeMeta
	// disks are all layers of the directory by file name, those of other branches and the head
	// included.
	disks map[string]*DiskMeta
	// stamped: there are sidecars that carry volume.meta's stamp.
	stamped bool
	// backingFile is the image below the bottom layer, "" for none.
	backingFile string
}

// newMeta is the metadata of a directory of which nothing was read.
func newMeta(d *directory, rand io.Reader, backingFile string) *meta {
	m := &meta{directory: d, reserve: reserve{d}, rand: rand, disks: map[string]*DiskMeta{}, backingFile: backingFile}
	m.copies = &copies{directory: d, of: m, changing: map[string]bool{}}
	return m
}

// beside is what the files say for other files of the same directory, with the given head on top.
func (m *meta) beside(d *directory, head string, disks map[string]*DiskMeta) *meta {
	o := newMeta(d, m.rand, m.backingFile)
	o.vm, o.disks = m.vm, disks
	o.vm.Head = head
	return o
}

// writeVolumeMeta makes v, with another seal, the durable volume.meta and the chain's own copy: the
// committing step of every change.
func (m *meta) writeVolumeMeta(v *volumeMeta) error {
	seal, err := newStamp(m.rand)
	if err != nil {
		return err
	}
	v.AnkoleSeal = seal.String()
	m.copies.stale = true
	if err := m.reserve.replace(volumeMetaName, v.encode()); err != nil {
		return err
	}
	m.vm = *v
	return nil
}

// commitHead names another head. givenUp is the present one where no snapshot takes its file over.
func (m *meta) commitHead(newHead, parent string, size int64, givenUp ...string) error {
	vm := m.vm
	vm.Head, vm.Parent, vm.Size = newHead, parent, size
	vm.AnkoleGivenUp = append(slices.Clone(vm.AnkoleGivenUp), givenUp...)
	if vm.AnkoleStamp != "" {
		vm.AnkoleHead = newHead
	}
	return m.writeVolumeMeta(&vm)
}

// writeDiskMeta makes d the durable .meta of a layer.
func (m *meta) writeDiskMeta(file string, d *DiskMeta) error {
	if err := m.copies.mark(file + metaSuffix); err != nil {
		return err
	}
	m.copies.stale = true
	return m.reserve.replace(file+metaSuffix, d.encode())
}

// change replaces what is said of a layer, durably and then here.
func (m *meta) change(file string, d DiskMeta) error {
	err := m.writeDiskMeta(file, &d)
	if err == nil {
		m.disks[file] = &d
	}
	return err
}

// rewriteMended puts whole files in the place of layers' metadata that was read from the copy.
// volume.meta is replaced by the end of Open anyway.
func (m *meta) rewriteMended() error {
	if m.readOnly {
		return nil
	}
	for _, file := range slices.Sorted(maps.Keys(m.disks)) {
		if !slices.Contains(m.copies.mended, file+metaSuffix) {
			continue
		}
		if err := m.writeDiskMeta(file, m.disks[file]); err != nil {
			return err
		}
	}
	return nil
}

// mendMeta writes metadata files that are gone.
func (m *meta) mendMeta() error {
	names, err := m.fs.List(m.dir)
	if err != nil {
		return err
	}
	if !slices.Contains(names, volumeMetaName) {
		m.log.Error("metadata was removed; it is written again", "dir", m.dir, "file", volumeMetaName)
		vm := m.vm
		if err := m.writeVolumeMeta(&vm); err != nil {
			return err
		}
	}
	for file, d := range m.disks {
		if slices.Contains(names, file+metaSuffix) {
			continue
		}
		m.log.Error("metadata was removed; it is written again", "dir", m.dir, "file", file+metaSuffix)
		if err := m.writeDiskMeta(file, d); err != nil {
			return err
		}
	}
	return nil
}

func (m *meta) setRebuilding() error {
	if err := m.usable(); err != nil {
		return err
	}
	if m.vm.Rebuilding {
		return nil
	}
	vm := m.vm
	vm.Rebuilding = true
	return m.writeVolumeMeta(&vm)
}

// MarkRemoved marks a snapshot for the next purge; durable when it returns nil, and no change if it
// was marked.
func (m *meta) MarkRemoved(name string) error {
	if err := m.usable(); err != nil {
		return err
	}
	file := snapshotFile(name)
	d := m.disks[file]
	if d == nil {
		return fmt.Errorf("%w: there is no snapshot %q", ErrNotFound, name)
	}
	if d.Removed {
		return nil
	}
	marked := *d
	marked.Removed = true
	return m.change(file, marked)
}

// SizeBytes is the volume's size, a multiple of 4096.
func (m *meta) SizeBytes() int64 { return m.vm.Size }

// children returns the files whose parent is file, sorted.
func (m *meta) children(file string) []string {
	var out []string
	for name, d := range m.disks {
		if d.Parent == file {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// liveChain returns the files from the bottom layer to the head.
func (m *meta) liveChain() ([]string, error) { return chainOf(m.disks, m.vm.Head) }

// ownHead tells whether no other engine has written to the head. One that has had the directory
// open has rewritten volume.meta without our keys; the sidecars, which may be lost, say no more.
func (m *meta) ownHead() bool { return m.vm.AnkoleStamp != "" && m.vm.AnkoleHead == m.vm.Head }

// interruptedWrites tells whether a doubtful block of the head can only be a write that an unclean
// stop cut short.
func (m *meta) interruptedWrites() bool { return m.vm.Dirty && m.ownHead() }

func (m *meta) namesWhiteouts(number string) bool {
	for _, d := range m.disks {
		if d.whiteouts == number {
			return true
		}
	}
	return false
}

// HasWhiteouts reports whether a layer has a whiteout file, with anything in it or not.
func (m *meta) HasWhiteouts(file string) bool {
	return m.disks[file] != nil && m.disks[file].whiteouts != ""
}

// atBottom tells whether nothing is below a layer.
func (m *meta) atBottom(d *DiskMeta) bool { return d.Parent == "" && m.backingFile == "" }

// mergedWhiteouts are those of the layer that a complete merge makes of source and child.
func (m *meta) mergedWhiteouts(source, child string) string {
	from := m.disks[source]
	switch {
	case m.atBottom(from):
		return ""
	case from.whiteouts == "":
		return m.disks[child].whiteouts
	}
	return from.whiteouts
}
