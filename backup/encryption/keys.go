// Package encryption keeps the content of volumes secret from whoever reads a backup store, and has
// changes by whoever writes it told.
//
// The Secret of a backup target has a current key, with which new backups are encrypted, and old
// ones, with which earlier backups are read. A key is named by its id, which is derived from it.
// What encrypts blocks, names them and authenticates records are keys of one volume, derived from
// that key and the name of the volume. Formats, and what is not protected, are in
// docs/design/backup-store.md.
package encryption

import (
	"crypto/hkdf"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Keys of a Secret, which are names of variables where credentials come by the environment.
const (
	Variable    = "BACKUP_ENCRYPTION_KEY"
	OldVariable = "BACKUP_ENCRYPTION_OLD_KEYS"
)

// maxOld bounds the old keys: each block that names a key is looked up among them.
const maxOld = 64

// ErrNoKey: a backup is encrypted, and the Secret does not have its key.
var ErrNoKey = errors.New("its key is not in the Secret of the backup target")

// ID names a key. It tells nothing else of it. The zero ID names none.
type ID [8]byte

// String is the id in 16 hex digits.
func (i ID) String() string { return hex.EncodeToString(i[:]) }

// ParseID reads 16 lower-case hex digits.
func ParseID(s string) (id ID, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) || hex.EncodeToString(b) != s || ID(b) == (ID{}) {
		return ID{}, fmt.Errorf("%q is no id of a key", s)
	}
	return ID(b), nil
}

// Key is a key of a Secret, 32 random bytes.
type Key [32]byte

// ID is the name of the key.
func (k Key) ID() ID { return ID(k.derive("id", "", len(ID{}))) }

// Format prints the id only, whatever is asked for.
func (k Key) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, "key "+k.ID().String()) // a state has nowhere to tell an error
}

// derive returns so many bytes for a purpose, of a volume unless that is "".
func (k Key) derive(purpose, volume string, bytes int) []byte {
	info := "ankole backup v1 " + purpose
	if volume != "" {
		info += "\x00" + volume
	}
	out, err := hkdf.Key(sha512.New, k[:], nil, info, bytes)
	if err != nil {
		panic(err) // HKDF gives 255 times 64 bytes
	}
	return out
}

// Keys are those of a Secret.
type Keys struct {
	// Current encrypts new backups; nil: they are not encrypted.
	Current *Key
	// Old are others that earlier backups may be encrypted with.
	Old []Key
}

// Parse reads the values of Variable and OldVariable, either of which may be "". Errors have
// nothing of the values.
func Parse(current, old string) (Keys, error) {
	var keys Keys
	if current = strings.TrimSpace(current); current != "" {
		k, ok := parse(current)
		if !ok {
			return Keys{}, fmt.Errorf("%s of the Secret is not 32 bytes in base64: make one with: openssl rand -base64 32",
				Variable)
		}
		keys.Current = &k
	}
	for i, text := range strings.FieldsFunc(old, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		k, ok := parse(text)
		if !ok {
			return Keys{}, fmt.Errorf("number %d of %s of the Secret is not 32 bytes in base64", i+1, OldVariable)
		}
		if i == maxOld {
			return Keys{}, fmt.Errorf("%s of the Secret has more than %d keys: remove those that no backup names any more",
				OldVariable, maxOld)
		}
		keys.Old = append(keys.Old, k)
	}
	return keys, nil
}

func parse(text string) (Key, bool) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != len(Key{}) {
		return Key{}, false
	}
	return Key(b), true
}

// All are the current key, if there is one, and the old ones.
func (k Keys) All() []Key {
	if k.Current == nil {
		return k.Old
	}
	return append([]Key{*k.Current}, k.Old...)
}

// Of returns the key of an id, or ErrNoKey, which says what to do.
func (k Keys) Of(id ID) (Key, error) {
	var there []string
	for _, key := range k.All() {
		if key.ID() == id {
			return key, nil
		}
		there = append(there, key.ID().String())
	}
	has := "which has none"
	if len(there) > 0 {
		has = "which has " + strings.Join(there, ", ")
	}
	return Key{}, fmt.Errorf("encrypted with key %s, and %w, %s: add the key to %s there", id, ErrNoKey, has, OldVariable)
}
