package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// Grant allows whoever holds its key to read one snapshot of a volume, and nothing else, until it
// expires. The volume's engine gives it out; replicas need nothing but the volume's secret to check
// it.
type Grant struct {
	Snapshot string `json:"snapshot"`
	// For is the UUID of the volume that reads.
	For string `json:"for"`
	// Expires is when no session can be begun with it any more, in seconds since 1970, UTC.
	Expires int64 `json:"expires"`
}

// Key derives the grant's key from the secret of the volume: HMAC-SHA-256 over what is granted,
// each text preceded by its length.
func (g *Grant) Key(secret []byte, volumeUUID string) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("ankole grant 1 "))
	for _, s := range []string{volumeUUID, g.Snapshot, g.For} {
		m.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(s))))
		m.Write([]byte(s))
	}
	m.Write(binary.LittleEndian.AppendUint64(nil, uint64(g.Expires)))
	return m.Sum(nil)
}

// ViewExtents asks for where the snapshot that the session has open holds data, from byte Off on.
type ViewExtents struct {
	Off int64 `json:"off"`
	// Since asks instead for what was written or discarded after the snapshot of that name, which is
	// below the one that is open; NotFound if it is not.
	Since string `json:"since,omitempty"`
}

// ImportMark marks the head as content that is being brought in from outside and is not complete;
// What says from where, and is empty to take the mark away. Taking a snapshot takes it away too.
type ImportMark struct {
	What string `json:"what"`
}
