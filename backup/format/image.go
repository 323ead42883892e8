package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	"ankole.storage/backup/encryption"
)

// imageKeys stands for a volume where keys are derived for backing images: no volume has such a
// name, and their blocks are shared by all.
const imageKeys = "/backing-images"

// ImageKey derives the key of the blocks and records of backing images.
func ImageKey(k *encryption.Key) *encryption.Volume {
	if k == nil {
		return nil
	}
	return k.ForVolume(imageKeys)
}

// ImageBlockBytes is the size of the blocks of backing images; their records have none.
const ImageBlockBytes = DefaultBlockBytes

// Image is the record of a backing image's backup. An image has one backup in a store, under its
// own name.
type Image struct {
	Name string
	// SizeBytes is the length of the file, a multiple of 512. The last block is filled up with
	// zeroes.
	SizeBytes int64
	// Checksum is the SHA-512 of the file in hex.
	Checksum string
	Labels   map[string]string
	// Created is when the backup began, Completed when it was complete; zero while it is in
	// progress.
	Created, Completed Time
	Compression        Compression
	// Secret and SecretNamespace name the Secret that an image is encrypted with; "" for none.
	Secret, SecretNamespace string
	// Key is the key that all blocks are encrypted with; zero: they are not encrypted.
	Key encryption.ID
	// Blocks are sorted by offset.
	Blocks []Block

	seal seal
}

// InProgress reports whether the backup is not complete, and may never be.
func (i *Image) InProgress() bool { return i.Completed.IsZero() }

// Encrypted reports whether the blocks are encrypted.
func (i *Image) Encrypted() bool { return i.Key != encryption.ID{} }

// imageJSON are the fields of backing-image.cfg in the order in which they are written.
type imageJSON struct {
	Name                      string
	Size                      int64 `json:",string"`
	BlockCount                int64 `json:",string"`
	Checksum                  string
	Labels                    map[string]string
	CompressionMethod         Compression
	CreatedTime, CompleteTime Time
	Secret, SecretNamespace   string
	ProcessingBlocks          json.RawMessage
	Blocks                    []Block `json:",omitempty"`
	EncryptionKey             string  `json:",omitempty"`
}

// Marshal returns the record as it is stored. With a key it says what nobody can say without.
func (i *Image) Marshal(key *encryption.Volume) ([]byte, error) {
	method, id := i.Compression, ""
	if i.Encrypted() {
		method, id = method.Encrypted(), i.Key.String()
	}
	data, err := json.Marshal(imageJSON{Name: i.Name, Size: i.SizeBytes, BlockCount: int64(len(i.Blocks)),
		Checksum: i.Checksum, Labels: i.Labels, CompressionMethod: method, CreatedTime: i.Created,
		CompleteTime: i.Completed, Secret: i.Secret, SecretNamespace: i.SecretNamespace,
		ProcessingBlocks: json.RawMessage("{}"), Blocks: i.Blocks, EncryptionKey: id})
	if err == nil && i.Encrypted() {
		data = sealed(data, key)
	}
	return data, err
}

// CheckAuthentic returns ErrCorrupt unless the record was read as it was when it was
// authenticated.
func (i *Image) CheckAuthentic(key *encryption.Volume) error {
	if err := i.seal.check(key); err != nil {
		return fmt.Errorf("record of backing image %s: %w", i.Name, err)
	}
	return nil
}

var sha512Hex = regexp.MustCompile(`^[0-9a-f]{128}$`)

// ParseImage reads backing-image.cfg of an image, or returns ErrCorrupt.
func ParseImage(data []byte, name string) (*Image, error) {
	broken := func(why error) (*Image, error) {
		return nil, fmt.Errorf("record of backing image %s: %w: %w", name, ErrCorrupt, why)
	}
	var f imageJSON
	if err := json.Unmarshal(bytes.TrimSpace(data), &f); err != nil {
		return broken(err)
	}
	if f.Name != name {
		return broken(fmt.Errorf("it is that of image %q", f.Name))
	}
	i := &Image{Name: f.Name, SizeBytes: f.Size, Checksum: f.Checksum, Labels: f.Labels, Created: f.CreatedTime,
		Completed: f.CompleteTime, Secret: f.Secret, SecretNamespace: f.SecretNamespace, Blocks: f.Blocks}
	method, encrypted := f.CompressionMethod.CutEncrypted()
	if i.Compression = method; method == "" {
		i.Compression = CompressionGzip
	}
	if encrypted != (f.EncryptionKey != "") {
		return broken(fmt.Errorf("compression %q, key %q: it is not said whether it is encrypted", f.CompressionMethod,
			f.EncryptionKey))
	}
	if err := i.Compression.Check(); err != nil {
		return broken(err)
	}
	if encrypted {
		id, err := encryption.ParseID(f.EncryptionKey)
		if err != nil {
			return broken(err)
		}
		i.Key, i.seal = id, readSeal(data)
	}
	if i.SizeBytes < 0 || i.SizeBytes%512 != 0 || f.Checksum != "" && !sha512Hex.MatchString(f.Checksum) {
		return broken(fmt.Errorf("%d bytes with checksum %q", i.SizeBytes, f.Checksum))
	}
	if err := checkBlocks(i.Blocks, ImageBlockBytes); err != nil {
		return broken(err)
	}
	if n := len(i.Blocks); n > 0 && i.Blocks[n-1].Offset >= i.SizeBytes {
		return broken(fmt.Errorf("block at offset %d of %d bytes", i.Blocks[n-1].Offset, i.SizeBytes))
	}
	return i, nil
}
