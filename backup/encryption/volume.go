package encryption

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
)

// Lengths of the parts of an encrypted block, in bytes.
const (
	// HeaderBytes precede the ciphertext: magic and version, the id of the key, the nonce.
	HeaderBytes = 28
	tagBytes    = 16
	nonceAt     = 16
)

// magic begins an encrypted block; its last byte is the version.
var magic = []byte("\x89ANKBLK\x01")

// SumBytes is how many bytes of a hash name a block.
const SumBytes = 32

// Volume is a key for one volume. Its methods may be called concurrently.
type Volume struct {
	id             ID
	aead           cipher.AEAD
	names, records []byte
}

// ForVolume derives the keys of a volume.
func (k Key) ForVolume(volume string) *Volume {
	block, err := aes.NewCipher(k.derive("content", volume, 32))
	if err != nil {
		panic(err) // 32 bytes are a key of AES
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has blocks of 16 bytes
	}
	return &Volume{id: k.ID(), aead: aead, names: k.derive("names", volume, sha512.Size),
		records: k.derive("records", volume, sha512.Size)}
}

// ID is that of the key; the zero ID for nil.
func (v *Volume) ID() ID {
	if v == nil {
		return ID{}
	}
	return v.id
}

// Hash returns what the content of a block is hashed with for its name: the first SumBytes of the
// result.
func (v *Volume) Hash() hash.Hash { return hmac.New(sha512.New, v.names) }

// Authenticate returns what is stored with a record, in hex digits.
func (v *Volume) Authenticate(record []byte) string {
	h := hmac.New(sha512.New, v.records)
	h.Write(record)
	return hex.EncodeToString(h.Sum(nil)[:SumBytes])
}

// Authentic reports whether a record is as it was when that was stored with it.
func (v *Volume) Authentic(record []byte, stored string) bool {
	return hmac.Equal([]byte(v.Authenticate(record)), []byte(stored))
}

// Seal encrypts what stands behind HeaderBytes in block, in its place, and returns the block as it
// is stored under a name. With room for 16 bytes more in block nothing is allocated.
func (v *Volume) Seal(block []byte, name [SumBytes]byte) []byte {
	copy(block, magic)
	copy(block[len(magic):], v.id[:])
	_, _ = rand.Read(block[nonceAt:HeaderBytes]) // it never fails
	return v.aead.Seal(block[:HeaderBytes], block[nonceAt:HeaderBytes], block[HeaderBytes:], authenticated(block, name))
}

// Open returns what Seal was given behind HeaderBytes; it stands in the place of stored, which is
// lost where there is an error.
func (v *Volume) Open(stored []byte, name [SumBytes]byte) ([]byte, error) {
	switch id, ok := KeyOf(stored); {
	case !ok:
		return nil, errors.New("it is not encrypted, or its header is damaged")
	case id != v.id:
		return nil, fmt.Errorf("it names key %s, and its backup key %s", id, v.id)
	}
	out, err := v.aead.Open(stored[HeaderBytes:HeaderBytes], stored[nonceAt:HeaderBytes], stored[HeaderBytes:],
		authenticated(stored, name))
	if err != nil {
		return nil, errors.New("it was changed since it was encrypted, or is that of another name")
	}
	return out, nil
}

// authenticated is what the tag of a block covers beside the ciphertext.
func authenticated(block []byte, name [SumBytes]byte) []byte {
	return append(slices.Clone(block[:nonceAt]), name[:]...)
}

// KeyOf returns the id of the key that a stored block names; not ok if it is not encrypted.
func KeyOf(stored []byte) (id ID, ok bool) {
	if len(stored) < HeaderBytes+tagBytes || !bytes.HasPrefix(stored, magic) {
		return ID{}, false
	}
	return ID(stored[len(magic):nonceAt]), true
}
