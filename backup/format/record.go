package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"ankole.storage/backup/encryption"
)

// Bounds of records that are read. A backup record has about 110 bytes for each block.
const (
	MaxVolumeRecordBytes = 1 << 20
	MaxBackupRecordBytes = 1 << 30
	MaxLockBytes         = 4 << 10
)

// Sizes of blocks, in bytes.
const (
	DefaultBlockBytes = 2 << 20
	LargeBlockBytes   = 16 << 20
)

// Modes of a backup, in its parameter ModeParameter.
const (
	ModeParameter      = "backup-mode"
	BlockSizeParameter = "backup-block-size"
	ModeFull           = "full"
	ModeIncremental    = "incremental"
	// ImageParameter is of backups of a volume on a backing image: with ImageIncluded they have what
	// the volume reads from the image too. Other programs leave that out.
	ImageParameter = "backing-image-content"
	ImageIncluded  = "included"
)

// Time is when something happened, to the second; the zero time is "" in records.
type Time struct{ time.Time }

// MarshalJSON writes RFC 3339 in UTC.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte(`""`), nil
	}
	return json.Marshal(t.UTC().Format(time.RFC3339))
}

// UnmarshalJSON reads RFC 3339 or "".
func (t *Time) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil || s == "" {
		t.Time = time.Time{}
		return err
	}
	parsed, err := time.Parse(time.RFC3339, s)
	t.Time = parsed.UTC()
	return err
}

// nested is a string that records hold as a JSON string inside of a JSON string.
type nested string

func (n nested) MarshalJSON() ([]byte, error) {
	inner, err := json.Marshal(string(n))
	if err != nil {
		return nil, err
	}
	return json.Marshal(string(inner))
}

func (n *nested) UnmarshalJSON(data []byte) error {
	var outer, inner string
	if err := json.Unmarshal(data, &outer); err != nil {
		return err
	}
	if json.Unmarshal([]byte(outer), &inner) != nil {
		inner = outer // written plainly
	}
	*n = nested(inner)
	return nil
}

// Volume is the record of a volume.
type Volume struct {
	Name      string
	SizeBytes int64
	Labels    map[string]string
	Created   Time
	// LastBackup is the backup that the next one may be an increment of, "" if there is none.
	LastBackup string
	// LastBackupAt is when the snapshot of that backup was taken.
	LastBackupAt Time
	// BlockCount is how many blocks the store holds for the volume.
	BlockCount           int64
	BackingImage         string
	BackingImageChecksum string
	Compression          Compression
	StorageClass         string
	DataEngine           string

	// unknown are fields that other programs wrote.
	unknown map[string]json.RawMessage
}

// volumeJSON are the fields of volume.cfg in the order in which they are written.
type volumeJSON struct {
	Name                 string
	Size                 int64 `json:",string"`
	Labels               map[string]string
	CreatedTime          Time
	LastBackupName       string
	LastBackupAt         Time
	BlockCount           int64 `json:",string"`
	BackingImageName     nested
	BackingImageChecksum nested
	CompressionMethod    *nested
	StorageClassName     nested
	DataEngine           nested
}

var volumeFields = []string{"Name", "Size", "Labels", "CreatedTime", "LastBackupName", "LastBackupAt", "BlockCount",
	"BackingImageName", "BackingImageChecksum", "CompressionMethod", "StorageClassName", "DataEngine"}

// Marshal returns the record as it is stored.
func (v *Volume) Marshal() ([]byte, error) {
	method := nested(v.Compression)
	data, err := json.Marshal(volumeJSON{v.Name, v.SizeBytes, v.Labels, v.Created, v.LastBackup, v.LastBackupAt,
		v.BlockCount, nested(v.BackingImage), nested(v.BackingImageChecksum), &method, nested(v.StorageClass),
		nested(v.DataEngine)})
	if err != nil || len(v.unknown) == 0 {
		return data, err
	}
	data = data[:len(data)-1]
	for _, key := range slices.Sorted(maps.Keys(v.unknown)) {
		name, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		data = append(append(append(append(data, ','), name...), ':'), v.unknown[key]...)
	}
	return append(data, '}'), nil
}

// ParseVolume reads volume.cfg of a volume, or returns ErrCorrupt.
func ParseVolume(data []byte, name string) (*Volume, error) {
	var f volumeJSON
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("record of volume %s: %w: %w", name, ErrCorrupt, err)
	}
	if f.Name != name || f.Size < 0 || f.BlockCount < 0 {
		return nil, fmt.Errorf("record of volume %s: name %q, %d bytes, %d blocks: %w", name, f.Name, f.Size, f.BlockCount,
			ErrCorrupt)
	}
	method := CompressionGzip // volumes from before there was another one
	if f.CompressionMethod != nil && *f.CompressionMethod != "" {
		method = Compression(*f.CompressionMethod)
	}
	if err := method.Check(); err != nil {
		return nil, fmt.Errorf("record of volume %s: %w: %w", name, ErrCorrupt, err)
	}
	engine := string(f.DataEngine)
	if engine == "" {
		engine = "v1"
	}
	v := &Volume{Name: f.Name, SizeBytes: f.Size, Labels: f.Labels, Created: f.CreatedTime,
		LastBackup: f.LastBackupName, LastBackupAt: f.LastBackupAt, BlockCount: f.BlockCount,
		BackingImage: string(f.BackingImageName), BackingImageChecksum: string(f.BackingImageChecksum),
		Compression: method, StorageClass: string(f.StorageClassName), DataEngine: engine}
	if err := json.Unmarshal(data, &v.unknown); err != nil {
		return nil, fmt.Errorf("record of volume %s: %w: %w", name, ErrCorrupt, err)
	}
	maps.DeleteFunc(v.unknown, func(key string, _ json.RawMessage) bool {
		return slices.ContainsFunc(volumeFields, func(f string) bool { return strings.EqualFold(f, key) })
	})
	return v, nil
}

// Block is where a block of the store lies in a volume.
type Block struct {
	// Offset in the volume, in bytes; a multiple of the size of blocks.
	Offset   int64
	Checksum Checksum
}

// Backup is the record of a backup.
type Backup struct {
	Name            string
	Volume          string
	Snapshot        string
	SnapshotCreated Time
	// Created is when the backup was complete; zero while it is in progress.
	Created Time
	Labels  map[string]string
	// Parameters are what the backup was asked for: ModeParameter, BlockSizeParameter and others.
	Parameters map[string]string
	// Incremental: the blocks of an earlier backup were taken over.
	Incremental bool
	Compression Compression
	// Key is the key that all blocks are encrypted with; zero: they are not encrypted.
	Key encryption.ID
	// NewBytes and RewrittenBytes are what was written: blocks that were not there, and blocks that
	// were. As stored, so compressed.
	NewBytes, RewrittenBytes int64
	// BlockBytes is the size of blocks.
	BlockBytes int64
	// Blocks are sorted by offset.
	Blocks []Block

	seal seal
}

// SizeBytes is what the backup refers to: whole blocks.
func (b *Backup) SizeBytes() int64 { return int64(len(b.Blocks)) * b.BlockBytes }

// InProgress reports whether the backup is not complete, and may never be.
func (b *Backup) InProgress() bool { return b.Created.IsZero() }

// Encrypted reports whether the blocks are encrypted.
func (b *Backup) Encrypted() bool { return b.Key != encryption.ID{} }

// MarshalAuthentic returns the record as it is stored, with what nobody can say of it without the
// key of its volume.
func (b *Backup) MarshalAuthentic(key *encryption.Volume) ([]byte, error) {
	data, err := b.Marshal()
	return sealed(data, key), err
}

// CheckAuthentic returns ErrCorrupt unless the record was read as it was when it was authenticated.
func (b *Backup) CheckAuthentic(key *encryption.Volume) error {
	if err := b.seal.check(key); err != nil {
		return fmt.Errorf("record of backup %s of volume %s: %w", b.Name, b.Volume, err)
	}
	return nil
}

// backupJSON are the fields of a backup record in the order in which they are written.
type backupJSON struct {
	Name, VolumeName, SnapshotName string
	SnapshotCreatedAt, CreatedTime Time
	Size                           int64 `json:",string"`
	Labels, Parameters             map[string]string
	IsIncremental                  bool
	CompressionMethod              Compression
	NewlyUploadedDataSize          int64 `json:",string"`
	ReUploadedDataSize             int64 `json:",string"`
	ProcessingBlocks               json.RawMessage
	Blocks                         []Block `json:",omitempty"`
	SingleFile                     struct{ FilePath string }
	EncryptionKey                  string `json:",omitempty"`
}

// MarshalJSON writes a block as in a record.
func (b Block) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `{"Offset":%d,"BlockChecksum":"%s"}`, b.Offset, b.Checksum), nil
}

// UnmarshalJSON reads a block of a record.
func (b *Block) UnmarshalJSON(data []byte) (err error) {
	var f struct {
		Offset        *int64
		BlockChecksum string
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	if f.Offset == nil {
		return errors.New("a block without an offset")
	}
	b.Offset = *f.Offset
	b.Checksum, err = ParseChecksum(f.BlockChecksum)
	return err
}

// encryptedSnapshot precedes the snapshot in records of encrypted backups. No chain has a snapshot
// of such a name, so programs that cannot decrypt take the backup for no base of another one.
const encryptedSnapshot = "encrypted/"

// Marshal returns the record as it is stored.
func (b *Backup) Marshal() ([]byte, error) {
	snapshot, method, key := b.Snapshot, b.Compression, ""
	if b.Encrypted() {
		snapshot, method, key = encryptedSnapshot+snapshot, method.Encrypted(), b.Key.String()
	}
	parameters := maps.Clone(b.Parameters)
	if parameters == nil {
		parameters = map[string]string{}
	}
	parameters[BlockSizeParameter] = strconv.FormatInt(b.BlockBytes, 10)
	return json.Marshal(backupJSON{Name: b.Name, VolumeName: b.Volume, SnapshotName: snapshot,
		SnapshotCreatedAt: b.SnapshotCreated, CreatedTime: b.Created, Size: b.SizeBytes(), Labels: b.Labels,
		Parameters: parameters, IsIncremental: b.Incremental, CompressionMethod: method,
		NewlyUploadedDataSize: b.NewBytes, ReUploadedDataSize: b.RewrittenBytes,
		ProcessingBlocks: json.RawMessage("{}"), Blocks: b.Blocks, EncryptionKey: key})
}

// ParseBackup reads the record of a backup of a volume, or returns ErrCorrupt.
func ParseBackup(data []byte, volume, name string) (*Backup, error) {
	broken := func(why error) (*Backup, error) {
		return nil, fmt.Errorf("record of backup %s of volume %s: %w: %w", name, volume, ErrCorrupt, why)
	}
	var f backupJSON
	if err := json.Unmarshal(bytes.TrimSpace(data), &f); err != nil {
		return broken(err)
	}
	if f.CompressionMethod == "" {
		f.CompressionMethod = CompressionGzip
	}
	key, err := f.decrypted()
	if err != nil {
		return broken(err)
	}
	b := &Backup{Name: f.Name, Volume: f.VolumeName, Snapshot: f.SnapshotName, SnapshotCreated: f.SnapshotCreatedAt,
		Created: f.CreatedTime, Labels: f.Labels, Parameters: f.Parameters, Incremental: f.IsIncremental,
		Compression: f.CompressionMethod, Key: key, NewBytes: f.NewlyUploadedDataSize,
		RewrittenBytes: f.ReUploadedDataSize, Blocks: f.Blocks}
	if b.Encrypted() {
		b.seal = readSeal(data)
	}
	if b.BlockBytes, err = ParseBlockBytes(f.Parameters[BlockSizeParameter]); err != nil {
		return broken(err)
	}
	if b.Name != name || b.Volume != volume {
		return broken(fmt.Errorf("it is that of backup %q of volume %q", b.Name, b.Volume))
	}
	if err := b.Compression.Check(); err != nil {
		return broken(err)
	}
	if err := checkBlocks(b.Blocks, b.BlockBytes); err != nil {
		return broken(err)
	}
	return b, nil
}

// checkBlocks returns an error unless blocks lie one behind the other.
func checkBlocks(blocks []Block, blockBytes int64) error {
	last := int64(-1)
	for _, at := range blocks {
		if at.Offset <= last || at.Offset%blockBytes != 0 {
			return fmt.Errorf("block at offset %d after %d with blocks of %d bytes", at.Offset, last, blockBytes)
		}
		last = at.Offset
	}
	return nil
}

// decrypted turns the fields of an encrypted backup into those of what is encrypted, and returns
// the id of its key; zero if it is not encrypted.
func (f *backupJSON) decrypted() (key encryption.ID, err error) {
	method, encrypted := f.CompressionMethod.CutEncrypted()
	snapshot, prefixed := strings.CutPrefix(f.SnapshotName, encryptedSnapshot)
	if encrypted != prefixed || encrypted != (f.EncryptionKey != "") {
		return key, fmt.Errorf("compression %q, snapshot %q, key %q: it is not said whether it is encrypted",
			f.CompressionMethod, f.SnapshotName, f.EncryptionKey)
	}
	if encrypted {
		f.CompressionMethod, f.SnapshotName = method, snapshot
		key, err = encryption.ParseID(f.EncryptionKey)
	}
	return key, err
}

// Lock types.
const (
	LockShared = 1 // backups and restores
	LockDelete = 2 // deletions
)

// Lock is the record of a lock.
type Lock struct {
	Name     string
	Type     int
	Acquired bool
}

// Marshal returns the record as it is stored.
func (l Lock) Marshal() ([]byte, error) { return json.Marshal(l) }

// ParseLock reads the record of a lock, or returns ErrCorrupt.
func ParseLock(data []byte) (l Lock, err error) {
	if err := json.Unmarshal(data, &l); err != nil {
		return l, fmt.Errorf("record of a lock: %w: %w", ErrCorrupt, err)
	}
	return l, nil
}
