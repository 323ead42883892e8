package format

import (
	"bytes"
	"crypto/sha512"
	"fmt"
	"strings"

	"ankole.storage/backup/encryption"
)

// authenticated begins the last field of a record that is authenticated. It is bytes and not a
// field of JSON: what is covered is what was written, however a later program would write it.
const authenticated = `,"Authentication":"`

// seal is what stood in the last field of a record that was read, and a hash of what stood before.
type seal struct {
	authentication string
	covered        [sha512.Size]byte
}

// sealed adds to a record what nobody can say of it without a key.
func sealed(record []byte, key *encryption.Volume) []byte {
	if len(record) == 0 {
		return nil
	}
	record = record[:len(record)-1]
	sum := sha512.Sum512(record)
	return append(record, authenticated+key.Authenticate(sum[:])+`"}`...)
}

func readSeal(record []byte) (s seal) {
	if i := bytes.LastIndex(record, []byte(authenticated)); i >= 0 {
		s.covered = sha512.Sum512(record[:i])
		s.authentication = strings.TrimSuffix(string(bytes.TrimSpace(record[i+len(authenticated):])), `"}`)
	}
	return s
}

// check returns ErrCorrupt unless the record was read as it was when it was sealed.
func (s *seal) check(key *encryption.Volume) error {
	if !key.Authentic(s.covered[:], s.authentication) {
		return fmt.Errorf("%w: it was changed by somebody without its key", ErrCorrupt)
	}
	return nil
}
