package naming

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"strings"

	"github.com/google/uuid"
)

// sha512Prefix returns the first n hex digits of the SHA-512 of s.
func sha512Prefix(s string, n int) string {
	sum := sha512.Sum512([]byte(s))
	return hex.EncodeToString(sum[:])[:n]
}

func sha256Hex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// RandomSuffix returns eight random hex digits, the suffix of replica names and data directories.
func RandomSuffix() string {
	return RandomHex(suffixDigits)
}

// RandomHex returns n random hex digits, n at most 32: the leading digits of a random UUID without
// its dashes.
func RandomHex(n int) string {
	id := uuid.New()
	return hex.EncodeToString(id[:])[:n]
}

// suffixDigits is the length of the random and hashed suffixes in names.
const suffixDigits = 8

// CanonicalImage turns an image reference into a string that can be a directory name: every colon
// and slash becomes a dash.
func CanonicalImage(image string) string {
	return strings.NewReplacer(":", "-", "/", "-").Replace(image)
}
